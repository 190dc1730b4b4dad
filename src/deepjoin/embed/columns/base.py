"""What every encoder of columns is: one vector a column, whatever it is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from deepjoin.embed.columns.text import Frequency
from deepjoin.model import Column

FloatMatrix = npt.NDArray[np.float32]
FloatVector = npt.NDArray[np.float32]


class ColumnEncoder(ABC):
    """Gives each column one vector, not normalised; close vectors mean joinable columns.

    ``digest`` stands for all a vector depends on beside the column: two encoders with one
    digest give the same vectors. A vector does not depend on the columns encoded with it.
    """

    name: str
    digest: str
    dimension: int
    #: Columns encoded at a time; a GPU is given more.
    block: int = 512
    #: Whether it matters how often a cell is repeated.
    counted: bool = False
    #: The method whose encoder it is; nothing for the models of `deepjoin`.
    kind: str = ""

    @abstractmethod
    def encode(self, columns: Sequence[Column], frequency: Frequency) -> FloatMatrix:
        """Return the vector of each column of a lake; zeros where nothing is known of it."""

    def encode_query(self, column: Column, frequency: Frequency) -> FloatVector:
        """Return the vector to search with."""
        vector: FloatVector = self.encode([column], frequency)[0]
        return vector

"""Choices that change what is indexed; stored with the index, and repeated by the next build."""

from __future__ import annotations

from dataclasses import dataclass

from deepjoin.errors import DeepJoinError
from deepjoin.normalise.canonical import PROFILES


@dataclass(frozen=True)
class Settings:
    """What becomes a column of the lake.

    >>> Settings(min_distinct=1).profile
    'default'
    """

    profile: str = "default"
    #: Columns with fewer distinct values are left out, as in the paper's corpora.
    min_distinct: int = 5
    #: A longer cell is no key: it is not indexed, and counted in the report.
    max_cell: int = 4096
    #: Columns whose distinct values are longer than this on average are free text.
    max_mean_length: int = 128
    #: Column names never indexed; shell patterns, case ignored.
    deny_columns: tuple[str, ...] = ()
    #: File patterns relative to the source folder.
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    #: Whether folders of part files count as one table where they are recognised.
    parts: str = "auto"
    #: Folders whose files always count as one table; patterns relative to the source folder.
    one_table: tuple[str, ...] = ()
    #: Read at most so many rows of each database table; 0 for all.
    sample_rows: int = 0
    #: SQL whose answer is another whenever a database table, `{table}` in it, is another.
    version_query: str = ""
    #: Store salted hashes instead of values and cells; the salt is made by the first build.
    hash_only: bool = False
    salt: str = ""

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise DeepJoinError(
                f"Unknown profile '{self.profile}'. Profiles: {', '.join(PROFILES)}."
            )
        if self.parts not in ("auto", "never"):
            raise DeepJoinError(f"parts is '{self.parts}'; it is auto or never.")
        if self.sample_rows < 0:
            raise DeepJoinError(f"sample_rows is {self.sample_rows}; it is 0, for all, or more.")
        if self.min_distinct < 1:
            raise DeepJoinError(f"min_distinct is {self.min_distinct}; it must be at least 1.")


@dataclass(frozen=True)
class Vectors:
    """What is encoded beside the values; other choices are made without reading a table again.

    >>> Vectors(encoder="none").cells
    'default'
    """

    #: Gives each column a vector: "default", "none", a model folder or the name of a model.
    encoder: str = "default"
    #: Gives each value a vector: "default", "none", a folder of a table, or fastText vectors.
    cells: str = "default"
    #: How many numbers a column's sketch has; 0 for no sketches.
    sketch: int = 0
    #: How column vectors are stored and searched; "auto" goes by their number.
    index: str = "auto"
    #: How near column vectors are: "cosine", or "euclidean".
    metric: str = "cosine"
    #: Which encoder and cells these were, whatever they are called: all segments have theirs.
    encoder_digest: str = ""
    cells_digest: str = ""

    def __post_init__(self) -> None:
        if self.sketch < 0:
            raise DeepJoinError(f"sketch is {self.sketch}; it is 0, for none, or a dimension.")


#: What is encoded unless told otherwise.
USUAL_VECTORS = Vectors()
#: A lake of hashes, or of an earlier version, has none.
NO_VECTORS = Vectors(encoder="none", cells="none")

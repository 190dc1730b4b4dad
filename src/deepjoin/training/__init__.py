"""Training of column encoders (paper, section 4): pairs from a self-join, then a ranking loss."""

from deepjoin.training.delivery import Trained
from deepjoin.training.run import train

__all__ = ["Trained", "train"]

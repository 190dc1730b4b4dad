"""Training of column encoders (paper, section 4): pairs from a self-join, then a ranking loss."""

from deepjoin.lab.training.delivery import Trained
from deepjoin.lab.training.run import train

__all__ = ["Trained", "train"]

"""Training of column encoders (paper, section 4): pairs from a self-join, then a ranking loss."""

from deepjoin.lab.training.delivery import TrainedEncoder
from deepjoin.lab.training.run import train
from deepjoin.lab.training.settings import TrainInputs, TrainResources, TrainSettings, preset

__all__ = ["TrainInputs", "TrainResources", "TrainSettings", "TrainedEncoder", "preset", "train"]

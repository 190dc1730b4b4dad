"""Columns to vectors (paper, section 4.2): the seam where language models plug in."""

from deepjoin.embed.columns.encoder import ColumnEncoder
from deepjoin.embed.columns.loading import DEFAULT, load_encoder

__all__ = ["DEFAULT", "ColumnEncoder", "load_encoder"]

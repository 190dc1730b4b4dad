"""Cells as canonical strings: the one space in which cells are compared."""

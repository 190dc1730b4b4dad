"""Vectors of cells and of columns, and how they are stored, scanned and searched."""

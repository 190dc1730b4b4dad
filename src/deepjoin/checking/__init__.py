"""Checks an index against itself and against its tables."""

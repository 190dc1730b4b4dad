"""PEXESO, for comparison."""

"""Column vectors of a lake: made from what its segments store, kept beside it, searched."""

"""From sources to segments of an index."""

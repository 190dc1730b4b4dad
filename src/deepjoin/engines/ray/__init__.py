"""Build an index on a Ray cluster."""

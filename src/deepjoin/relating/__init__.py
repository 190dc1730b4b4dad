"""The graph of a lake: its columns, and the equi-joins between them that the postings prove."""

"""Two columns to matched cells."""

"""Make the table of cell vectors."""

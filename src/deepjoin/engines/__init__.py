"""Work done elsewhere: Ray, PostgreSQL, GPUs."""

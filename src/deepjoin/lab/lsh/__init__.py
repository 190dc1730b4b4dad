"""LSH Ensemble, for comparison."""

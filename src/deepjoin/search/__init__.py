"""Search: a query's candidates, their scores, their ranking, the evidence, the hits."""

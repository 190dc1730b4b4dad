"""The paper's experiments as data: read, run, and shown beside the paper's figures.

``python -m benchmarks.paper list`` names them; each is a file in ``benchmarks/experiments``.
"""

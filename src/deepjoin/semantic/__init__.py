"""Exact semantic search over value vectors: PEXESO's problem, by one scan of 8-bit vectors.

`quantised` stores and scans the vectors, `bounds` and `exact` turn pairs of cells into scores
of columns, `engine.SemanticEngine` answers queries; `pexeso` is the published method.
"""

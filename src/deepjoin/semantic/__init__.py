"""Semantic search over value vectors: exact by one scan of 8-bit vectors, or by a few lists.

`quantised` stores the vectors and `scan` compares them, `bounds` and `exact` turn pairs of cells
into scores of columns, `engine.SemanticEngine` answers queries exactly. `list_build` sorts values
into lists of near ones, `lists` looks at a few of them; `copying` merges stored vectors. `pexeso`
is the published method.
"""

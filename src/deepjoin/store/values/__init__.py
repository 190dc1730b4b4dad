"""The value index: each distinct value, the columns that hold it, and its count in each.

The rest of a lake builds on it (``docs/architecture.md``): document frequency, exact equi-join
search, evidence and join keys all come from it. `builder.ValueIndexBuilder` makes it in
bounded memory; `index.ValueIndex` reads it by memory mapping.
"""

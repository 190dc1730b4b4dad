"""Two columns to matched cells.

- `entry` is `deepjoin.match`; `linking` has the order: equal values, programs, similar values.
- Programs: `programs` finds them, of the operations in `steps`, `formats` and `units`.
- Similar values: `candidates` proposes pairs, `features` describes them, `careful` gives each its
  chance, with models that `trees` runs; `decisions` keeps what people say.
- By vectors alone: `similar` finds them, `values` matches two columns, `engine` ranks all columns
  of a lake, `joinability` defines the score.
- Columns rather than cells: `names` compares their names, `sense` says whether a join makes sense.
"""

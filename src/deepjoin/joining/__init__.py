"""Join two tables on cells that are equal as canonical strings, or similar by their vectors.

`entry` takes what callers give: two tables, or a table and a hit. Then, one module a step:
`tables` describes both tables, `session` opens a database that may
spill to disk, `store` puts the tables into it and learns their types, `keys` compares the join
columns, `columns` and `sql` write the query, `output` runs it; `plan` calls them in this order.
A join by meaning (paper, section 2.1) has one step more: `facts` stores the pairs of values that
`deepjoin.matching` finds, for the query to go through. `pandas_code` and `database_sql` write the
same join for others to run.
"""

from deepjoin.joining.plan import JoinPlan, plan_join
from deepjoin.joining.tables import JoinSide

__all__ = ["JoinPlan", "JoinSide", "plan_join"]

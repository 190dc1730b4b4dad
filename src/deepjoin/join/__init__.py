"""Joins two tables on cells that are equal as canonical strings (paper, section 2.1, equi-joins).

The flow, a module a step: `session` opens a database that may spill, `store` puts both
tables in it, `casts` learns what their text really is, `keys` compares the join columns,
`names` and `sql` write the query, `output` runs it; `plan` calls them in this order.
"""

from deepjoin.join.facts import JoinFacts
from deepjoin.join.output import Rows
from deepjoin.join.plan import JoinPlan, plan_join
from deepjoin.join.side import Side

__all__ = ["JoinFacts", "JoinPlan", "Rows", "Side", "plan_join"]

"""Joins two tables on cells that are equal as canonical strings, or mean the same by vectors.

The flow, a module a step: `session` opens a database that may spill, `store` puts both
tables in it, `casts` learns what their text really is, `keys` compares the join columns,
`names` and `sql` write the query, `output` runs it; `plan` calls them in this order. A
semantic join (paper, section 2.1) has steps between: `matching` pairs the values that are
similar, with the scan of `nearest`, and `linking` stores the pairs for the query to go through.
"""

from deepjoin.joining.linking import NearMiss
from deepjoin.joining.output import Rows
from deepjoin.joining.plan import JoinPlan, plan_join
from deepjoin.joining.side import Side
from deepjoin.matching.matching import MATCHINGS, Semantic
from deepjoin.model import JoinFacts

__all__ = [
    "MATCHINGS",
    "JoinFacts",
    "JoinPlan",
    "NearMiss",
    "Rows",
    "Semantic",
    "Side",
    "plan_join",
]

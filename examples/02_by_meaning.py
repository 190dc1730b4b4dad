"""Match values that are spelled differently, and see every pair before trusting it."""

from pathlib import Path

import deepjoin
from deepjoin.demo import write_demo_lake

demo = write_demo_lake(Path("deepjoin-demo"))
lake = deepjoin.index(demo.folder)

spelled = ["U.S.A.", "Great Britain", "Holland", "Viet Nam", "Czechia"]

# Equal values find the one table that spells names like these; the default finds others as well.
print(lake.search(spelled, k=2, join="equi"))
print(lake.search(spelled, k=2))

hit = lake.explain(spelled, ("geo/countries.csv", "country"))
for match in hit.matches:
    print(f"{match.query:15} {match.target:20} {match.similarity:.2f}")
print("no match:", hit.unmatched)

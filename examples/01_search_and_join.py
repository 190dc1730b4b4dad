"""Find what joins with a column of orders, and join the best hit."""

from pathlib import Path

import pyarrow.csv

import deepjoin
from deepjoin.demo import write_demo_lake

demo = write_demo_lake(Path("deepjoin-demo"))
orders = pyarrow.csv.read_csv("deepjoin-demo/orders.csv")

# The first call reads every table of the folder; later calls read only what changed.
lake = deepjoin.index(demo.folder)

results = lake.search(orders, on="customer_country", k=3)
print(results)

best = results[0]
print(
    f"{best.matched} of {best.query_size} countries are in {best.table}; missing: {best.unmatched}"
)

enriched = lake.join(orders, on="customer_country", hit=best)
print(enriched.num_rows, "rows with", enriched.num_columns, "columns")

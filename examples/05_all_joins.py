"""Every pair of columns of a lake that joins, exactly, as a table of edges."""

from pathlib import Path

import deepjoin
from deepjoin.demo import write_demo_lake

demo = write_demo_lake(Path("deepjoin-demo"))
lake = deepjoin.index(demo.folder)
graph = lake.graph(min_joinability=0.9)
print(graph)
graph.write("joins.parquet")

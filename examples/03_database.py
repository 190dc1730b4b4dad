"""Index a database beside a folder of files, and get the join as SQL for that database."""

import sqlite3
from contextlib import closing
from pathlib import Path

import deepjoin

with closing(sqlite3.connect("shop.sqlite")) as shop, shop:
    shop.executescript(
        """
        CREATE TABLE customers (id INTEGER PRIMARY KEY, city TEXT, country TEXT);
        CREATE TABLE offices (city TEXT, phone TEXT);
        """
    )
    cities = ["Lyon", "Kyoto", "Porto", "Turin", "Bergen", "Gdańsk", "Tampere"]
    shop.executemany("INSERT INTO customers (city) VALUES (?)", [(city,) for city in cities * 3])
    shop.executemany("INSERT INTO offices VALUES (?, '+00')", [(city,) for city in cities[:5]])

# The database is opened read-only; the index is a folder of its own.
lake = deepjoin.index(Path("shop.sqlite"), "shop.index")
results = lake.search(lake.column("customers", "city"))
print(results)

with lake.plan_join("customers", "city", results[0]) as plan:
    print(plan.facts)
    print(lake.join_sql(plan, results[0].table, left="customers"))

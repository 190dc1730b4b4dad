"""A lake that changes: add and remove tables, and pick up changed files."""

from pathlib import Path

import deepjoin

folder = Path("lake")
folder.mkdir()
teams = ["Falcons", "Otters", "Herons", "Badgers", "Lynxes", "Ravens"]
rows = [f"{team},19{number}0" for number, team in enumerate(teams)]
(folder / "teams.csv").write_text("\n".join(["team,founded", *rows]))

lake = deepjoin.index(folder)
print(lake)

# A table from memory: a dictionary of columns works as well as a data frame.
lake.add({"stadiums": {"team": teams, "seats": list(range(6))}})
print([hit.table for hit in lake.search(teams)])

(folder / "teams.csv").write_text("team,founded\nFalcons,1901\n")
print(lake.refresh())
lake.remove("stadiums")
print(list(lake.tables))

"""How well `deepjoin relations` and the order of hits agree with what people declared.

    python benchmarks/relations.py DATABASES [--lake INDEX] [--open-data INDEX --judged CSV]

DATABASES has ``spider/*.sqlite`` with ``spider_fk.csv`` and ``chinook.sqlite`` with
``chinook_fk.csv``. Figures of Spider come from models that have not seen the database in question
(six folds by database); Chinook is in no model. ``--search`` measures how often a search with a
foreign key's column finds its parent first; ``--lake`` times the relations of a whole index.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import deepjoin
from deepjoin.lab.sense import (
    LabelledPairs,
    cross_validated,
    declared_keys,
    foreign_key_queries,
    further_sets,
    label_databases,
)
from deepjoin.relating.evidence import FEATURES
from deepjoin.settings import Vectors

#: What the ablation leaves out, by groups of features.
GROUPS = {
    "names": [n for n in FEATURES if "name" in n or "letters" in n or "stem" in n or "meaning" in n]
    + ["parent_home", "child_home", "parent_key", "child_key"],
    "containment and coverage": ["containment", "coverage", "matched"],
    "uniqueness and missing cells": [
        *("parent_unique", "parent_filled", "child_unique", "child_filled", "child_is_own_key")
    ],
    "types": ["same_type", "text", "integer", "decimal", "date"],
    "ranges, density, chance": [
        *("density", "low_gap", "high_gap", "chance", "generic", "parent_generic", "frequency")
    ],
    "place in the table": ["parent_place", "child_place", "parent_width"],
    "meaning of names": ["name_meaning", "table_meaning"],
}


def scores(found: np.ndarray, labels: np.ndarray, total: int) -> dict[str, float]:
    """Return precision, recall and F1 of what was found, of ``total`` declared keys."""
    return figures(int((found & (labels == 1)).sum()), int(found.sum()), total)


def figures(right: int, found: int, total: int) -> dict[str, float]:
    """Return precision, recall and F1 from counts."""
    precision, recall = right / max(1, found), right / max(1, total)
    f1 = 2 * precision * recall / max(1e-9, precision + recall)
    return {"precision": round(precision, 3), "recall": round(recall, 3), "f1": round(f1, 3)}


def calibration(chances: np.ndarray, labels: np.ndarray) -> tuple[float, list[dict[str, float]]]:
    """Return the expected calibration error over ten bins, and the bins."""
    bins = np.clip((chances * 10).astype(int), 0, 9)
    rows, error = [], 0.0
    for number in range(10):
        here = bins == number
        if not here.any():
            continue
        said, true = float(chances[here].mean()), float(labels[here].mean())
        error += abs(said - true) * float(here.mean())
        rows.append({"pairs": int(here.sum()), "said": round(said, 3), "true": round(true, 3)})
    return round(error, 4), rows


def by_size(some: LabelledPairs, chances: np.ndarray, keys: Sequence[Mapping[str, str]]) -> Any:
    """Score children of five values or more, and those of fewer."""
    sizes = some.facts.distinct[some.pairs.child]
    counts = [int(key["distinct_child"] or 0) for key in keys if key["n_columns"] == "1"]
    large, small = sum(n >= 5 for n in counts), sum(0 < n < 5 for n in counts)
    found = (chances >= 0.5) & some.used
    return {
        "five values or more": scores(found & (sizes >= 5), some.labels, large) | {"keys": large},
        "fewer": scores(found & (sizes < 5), some.labels, small) | {"keys": small},
    }


def parent_first(lake: deepjoin.Lake, keys: Sequence[Mapping[str, str]]) -> dict[str, float]:
    """Search the lake with the child of each key; count how often the parent is first."""
    queries = foreign_key_queries(lake, keys)
    first = 0
    for one in queries:
        hits = lake.search(one.column, 1)
        first += bool(hits) and hits[0].column_id in one.right
    return {
        "queries": len(queries),
        "first": first,
        "share": round(first / max(1, len(queries)), 3),
    }


def main() -> None:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("databases", type=Path)
    parser.add_argument("--ablation", action="store_true")
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--lake", help="an index to time")
    parser.add_argument("--open-data", help="the index that was judged")
    parser.add_argument("--judged", type=Path)
    options = parser.parse_args()
    report: dict[str, Any] = {}
    keys = declared_keys(options.databases / "spider_fk.csv")
    files = sorted((options.databases / "spider").glob("*.sqlite"))
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        plain = {"vectors": Vectors(cells="none")}
        lake = deepjoin.index(list(map(str, files)), place / "spider", **plain)
        databases = label_databases(lake, keys, across=False)
        others = further_sets(lake, keys, place, options.open_data, options.judged)
        chances = cross_validated(databases, others)
        report["spider"] = by_size(databases, chances, keys)
        error, bins = calibration(chances[databases.used], databases.labels[databases.used])
        report["spider"]["calibration error"] = error
        report["spider"]["bins"] = bins
        print(json.dumps(report), file=sys.stderr, flush=True)
        if options.ablation:
            # Of the databases alone: the same comparison in a fraction of the time.
            report["ablation"] = {}
            for name, group in {"nothing": [], **GROUPS}.items():
                columns = [FEATURES.index(one) for one in group]
                without = cross_validated(databases, [], columns)
                row = by_size(databases, without, keys)["five values or more"]
                error, _ = calibration(without[databases.used], databases.labels[databases.used])
                report["ablation"][f"without {name}"] = row | {"calibration error": error}
                print(json.dumps({name: row}), file=sys.stderr, flush=True)
        report["chinook"] = whole_database(options.databases, "chinook", place)
        if options.search:
            lake = deepjoin.index(list(map(str, files)), place / "all")
            report["parent first, all databases"] = parent_first(lake, keys)
            found = {"queries": 0, "first": 0}
            for file in files:
                own = [key for key in keys if key["db"] == file.stem]
                if own:
                    alone = deepjoin.index([str(file)], place / file.stem)
                    some = parent_first_alone(alone, own)
                    found = {name: found[name] + some[name] for name in found}
            share = round(found["first"] / max(1, found["queries"]), 3)
            report["parent first, own database"] = found | {"share": share}
    if options.lake:
        began = time.perf_counter()
        found = deepjoin.open(options.lake).relations()
        report["lake"] = {
            "seconds": round(time.perf_counter() - began, 1),
            "relations": len(found),
            "gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
        }
    print(json.dumps(report, indent=1))


def parent_first_alone(lake: deepjoin.Lake, keys: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Do the same inside one database, whose tables have no prefix."""
    first = count = 0
    for key in keys:
        if key["n_columns"] != "1" or int(key["distinct_child"] or 0) < 5:
            continue
        try:
            query = lake.column(key["table"], key["columns"])
            right = lake.column(key["ref_table"], key["ref_columns"]).column_id
        except deepjoin.DeepJoinError:
            continue
        hits = lake.search(query, 1)
        count, first = count + 1, first + (bool(hits) and hits[0].column_id == right)
    return {"queries": count, "first": first}


def whole_database(folder: Path, name: str, place: Path) -> dict[str, Any]:
    """Score a database that no model has seen, with the shipped model."""
    keys = declared_keys(folder / f"{name}_fk.csv")
    lake = deepjoin.index(
        str(folder / f"{name}.sqlite"), place / name, vectors=Vectors(cells="none")
    )
    found = lake.relations()
    declared = {
        (key["table"], key["columns"], key["ref_table"], key["ref_columns"]): int(
            key["distinct_child"]
        )
        for key in keys
        if key["n_columns"] == "1"
    }
    report = {"seconds": round(found.seconds, 2)}
    for label, large in (("five values or more", True), ("fewer", False)):
        wanted = {key for key, size in declared.items() if (size >= 5) == large}
        got = set()
        for one in found:
            size = next(
                c.distinct
                for c in lake.table(one.child_table).columns
                if c.name == one.child_columns[0]
            )
            if (size >= 5) == large:
                got.add(
                    (one.child_table, *one.child_columns, one.parent_table, *one.parent_columns)
                )
        report[label] = figures(len(got & wanted), len(got), len(wanted)) | {"keys": len(wanted)}
    return report


if __name__ == "__main__":
    main()

"""What `Lake.enrich` is worth to tree models, by the protocol of AutoFeat.

    python benchmarks/enrich.py DATA [--sets credit,school] [--splits 5] [--shuffled 20]
    python benchmarks/enrich.py --budget INDEX [--rows 100000] [--seconds 60]

DATA has a folder of tables for each set and ``datasets.csv``, which names the base table and the
target. Keys are *given* (named in the settings), *hidden* (nothing is named; the lake finds them),
or *masked* (nothing is named, and every key column is called otherwise in every table).

``--budget`` enriches a table made of columns of a large lake, and compares the time that it takes
with the time that it was given.

Rows are split 80 to 20 with seed 10, as AutoFeat does, and with other seeds. Joins and columns are
chosen on the 80 alone (*enriched*) and, as AutoFeat does, on all rows (*chosen on all*). Four tree
models of scikit-learn stand for AutoGluon's LightGBM, XGBoost, random forest and extra trees; a
figure is the mean of their accuracies. AutoFeat reports for each model the best of several join
paths, judged on the test rows; here there is one enriched table.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pandas as pd

import deepjoin
from common import Row, emit, machine, show, versions
from deepjoin import EnrichSettings, Lake
from deepjoin.sklearn import LakeEnricher

#: Accuracies as AutoFeat's authors published them.
PUBLISHED = {
    "credit": {"base": 0.644, "AutoFeat": 0.748, "ARDA": 0.680, "MAB": 0.670, "join all": 0.735},
    "school": {"base": 0.661, "AutoFeat": 0.698, "ARDA": 0.813, "MAB": 0.684},
}
#: Columns that are keys, by the descriptions of the sets.
KEYS = {"credit": ("Key_0_0", "Key_1_1", "Key_1_2"), "school": ("DBN",)}
AUTOFEAT_SPLIT = 10
#: Of what is printed: accuracies at AutoFeat's split, means over all and 95% intervals of these.
COLUMNS = (
    *("set", "keys", "base", "enriched", "mean", "±", "chosen on all", "mean", "±"),
    *("seconds", "CPU"),
)
DEPTH = 3


def models() -> dict[str, Any]:
    """Return the tree models, with settings near to AutoGluon's."""
    from sklearn import ensemble

    boosted = {"n_iter_no_change": 20, "validation_fraction": 0.2, "random_state": 0}
    return {
        "histogram boosting": ensemble.HistGradientBoostingClassifier(
            learning_rate=0.05, max_iter=1000, early_stopping=True, **boosted
        ),
        "boosting": ensemble.GradientBoostingClassifier(n_estimators=500, **boosted),
        "random forest": ensemble.RandomForestClassifier(300, random_state=0),
        "extra trees": ensemble.ExtraTreesClassifier(300, random_state=0),
    }


def as_numbers(train: pd.DataFrame, test: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Give numbers to categories and fill what is missing, by the training rows; drop free text."""
    learned, applied = {}, {}
    for name in train:
        if train[name].dtype.kind in "bif":
            middle = train[name].astype(float).median()
            middle = 0.0 if np.isnan(middle) else middle
            learned[name] = train[name].astype(float).fillna(middle)
            applied[name] = test[name].astype(float).fillna(middle)
        elif train[name].nunique() <= 100:
            known = {value: at for at, value in enumerate(train[name].value_counts().index)}
            learned[name] = train[name].map(known).astype(float).fillna(-1)
            applied[name] = test[name].map(known).astype(float).fillna(-1)
    return pd.DataFrame(learned), pd.DataFrame(applied)


def accuracies(train: pd.DataFrame, test: pd.DataFrame, y: pd.Series) -> dict[str, float]:
    """Fit every model on the training rows, and score it on the others."""
    from threadpoolctl import threadpool_limits

    learned, applied = as_numbers(train, test)
    with threadpool_limits(1):
        return {
            name: float(
                (model.fit(learned, y[learned.index]).predict(applied) == y[test.index]).mean()
            )
            for name, model in models().items()
        }


def prepared(folder: Path, name: str, masked: bool, into: Path) -> Path:
    """Copy the tables of a set; for masked keys, call them otherwise in every table."""
    into.mkdir(parents=True)
    for number, file in enumerate(sorted((folder / name).glob("*.csv"))):
        text = file.read_text(encoding="utf-8", errors="replace")
        head, newline, rest = text.partition("\n")
        if masked:
            for key in KEYS[name]:
                cells = next(csv.reader([head]))
                if key in cells:
                    cells[cells.index(key)] = f"field_{number}_{cells.index(key)}"
                    head = ",".join(f'"{cell}"' for cell in cells)
        (into / file.name).write_text(head + newline + rest, encoding="utf-8")
    return into


def evaluated(
    lake: Lake, base: pd.DataFrame, target: str, seeds: Sequence[int], settings: EnrichSettings
) -> Iterator[Row]:
    """Enrich 80% of the rows and judge on the others, for each split."""
    from sklearn.model_selection import train_test_split

    y = base[target]
    for seed in seeds:
        train, test = train_test_split(base.drop(columns=target), test_size=0.2, random_state=seed)
        wall, processor = perf_counter(), process_time()
        enricher = LakeEnricher(lake, depth=DEPTH, settings=settings)
        enricher.fit(train, y[train.index])
        with_lake = enricher.transform(train), enricher.transform(test)
        wall, processor = perf_counter() - wall, process_time() - processor
        before, after = accuracies(train, test, y), accuracies(*with_lake, y)
        yield {
            "split": seed,
            "base": float(np.mean(list(before.values()))),
            "enriched": float(np.mean(list(after.values()))),
            "models": {name: round(score, 3) for name, score in after.items()},
            "claimed": [round(enricher.score_before_, 3), round(enricher.score_after_, 3)],
            "columns": len(enricher.get_feature_names_out()) - train.shape[1],
            "seconds": wall,
            "processor_seconds": processor,
        }


def chosen_on_all(
    lake: Lake, base: pd.DataFrame, target: str, seeds: Sequence[int], settings: EnrichSettings
) -> list[float]:
    """Enrich all rows, then split: what the columns are chosen by includes the test rows."""
    from sklearn.model_selection import train_test_split

    table = lake.enrich(base, target, depth=DEPTH, settings=settings).table
    scores = []
    for seed in seeds:
        split = train_test_split(table.drop(columns=target), test_size=0.2, random_state=seed)
        scores.append(float(np.mean(list(accuracies(*split, base[target]).values()))))
    return scores


def shuffled(lake: Lake, base: pd.DataFrame, target: str, runs: int) -> Iterator[Row]:
    """Enrich with a shuffled target, which no column can tell."""
    for seed in range(runs):
        order = np.random.default_rng(seed).permutation(len(base))
        other = base.assign(**{target: base[target].to_numpy()[order]})
        found = lake.enrich(other, target, settings=EnrichSettings(seed=seed))
        yield {"run": seed, "claimed": found.gain or 0.0, "interval": found.interval}


def within_budget(lake: Lake, count: int, seconds: float) -> Row:
    """Enrich rows that are drawn from columns of a lake, with a target that depends on one."""
    drawn = np.random.default_rng(0)
    columns: dict[str, Any] = {}
    segment = max(lake.index.segments, key=lambda one: len(one.catalog.column_names))
    catalog = segment.catalog
    for number in drawn.permutation(len(catalog.column_names)).tolist():
        table = catalog.table_names[int(catalog.column_tables[number])]
        cells = [cell for cell in lake.column(table, catalog.column_names[number]).cells if cell]
        if len(set(cells)) >= 50:
            columns[f"column {len(columns)}"] = drawn.choice(cells, count)
        if len(columns) == 6:
            break
    codes = pd.factorize(columns["column 0"])[0]
    frame = pd.DataFrame(columns).assign(target=codes % 7 + drawn.normal(size=count))
    wall, processor = perf_counter(), process_time()
    found = lake.enrich(frame, "target", settings=EnrichSettings(seconds=seconds))
    wall, processor = perf_counter() - wall, process_time() - processor
    return {
        "rows": count,
        "columns_of_lake": lake.report.columns,
        "given_seconds": seconds,
        "seconds": wall,
        "processor_seconds": processor,
        "stopped": found.stopped,
        "joins": len(found.steps),
        "rejected": len(found.rejected),
    }


def with_interval(scores: Sequence[float]) -> tuple[float, float, float]:
    """Return the score of the first split, the mean of all, and half of its 95% interval."""
    error = np.std(scores, ddof=1) / len(scores) ** 0.5 if scores[1:] else 0.0
    return scores[0], float(np.mean(scores)), float(1.96 * error)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--budget", metavar="INDEX")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--sets", default="credit,school")
    parser.add_argument("--modes", default="given,hidden,masked,leaks")
    parser.add_argument("--splits", type=int, default=3, help="splits beside AutoFeat's")
    parser.add_argument("--shuffled", type=int, default=0, metavar="RUNS")
    options = parser.parse_args()
    emit("machine", **machine(), **versions("scikit-learn"))
    if options.budget:
        lake = deepjoin.open(options.budget)
        emit("budget", **within_budget(lake, options.rows, options.seconds))
        return
    listed = csv.DictReader((options.data / "datasets.csv").read_text().splitlines())
    described = {row["base_table_label"]: row for row in listed}
    rows: list[list[object]] = [[*COLUMNS]]
    for name in options.sets.split(","):
        target, file = described[name]["target_column"], described[name]["base_table_name"]
        for mode in options.modes.split(","):
            with tempfile.TemporaryDirectory() as place:
                folder = prepared(options.data, name, mode == "masked", Path(place) / "lake")
                lake = deepjoin.index(folder, Path(place) / "index")
                base = pd.read_csv(folder / file)
                if options.shuffled:
                    if mode == "hidden":
                        claims = [
                            emit("shuffled", set=name, **row)["claimed"] > 0
                            for row in shuffled(lake, base, target, options.shuffled)
                        ]
                        emit("claims", set=name, runs=len(claims), claims=sum(claims))
                    continue
                settings = EnrichSettings(
                    keys=KEYS[name] if mode == "given" else (), leaks=mode == "leaks"
                )
                seeds = [AUTOFEAT_SPLIT, *range(options.splits)]
                found = [
                    emit("enrich", set=name, keys=mode, **row)
                    for row in evaluated(lake, base, target, seeds, settings)
                ]
                of_all = chosen_on_all(lake, base, target, seeds, settings)
                emit("chosen on all", set=name, keys=mode, splits=seeds, scores=of_all)
            seconds = float(np.mean([row["seconds"] for row in found]))
            processor = float(np.mean([row["processor_seconds"] for row in found]))
            enriched = with_interval([row["enriched"] for row in found])
            times = seconds, processor
            rows.append([name, mode, found[0]["base"], *enriched, *with_interval(of_all), *times])
        emit("published", set=name, **PUBLISHED.get(name, {}))
    show(rows)


if __name__ == "__main__":
    main()

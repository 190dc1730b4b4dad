"""Running an experiment: every setting once, each result saved at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from benchmarks.paper.experiments import Experiment, Options
from benchmarks.paper.labelled import by_labels, examples
from benchmarks.paper.measures import accuracy, statistics, times
from benchmarks.paper.places import Places
from benchmarks.paper.results import Results

from deepjoin.errors import DeepJoinError
from deepjoin.search.methods import all_methods


def run(
    experiment: Experiment, size: str, places: Places, results: Results, again: bool = False,
    rows: Sequence[str] = (),
) -> list[str]:  # fmt: skip
    """Run the missing settings, of all rows or those named; return messages of failures."""
    settings = [one for one in experiment.settings(size) if not rows or one[1]["label"] in rows]
    asked = [one for one, row in settings if _can_run(one, row, places)]
    left = [one for one in asked if again or not results.rows(one)]
    places.tell(f"{experiment.name}: {len(left)} of {len(asked)} settings to run")
    command = f"python -m benchmarks.paper run {experiment.name} --data DIR --size {size}"
    if experiment.kind in _TOGETHER:
        return _together(experiment, asked if left else [], size, places, results, command)
    failed = []
    for number, setting in enumerate(left, 1):
        places.tell(f"{experiment.name} {number}/{len(left)}: {brief(setting)}")
        try:
            rows = list(_ALONE[experiment.kind](setting, places))
        except DeepJoinError as error:
            failed.append(f"{experiment.name}, {brief(setting)}: {error}")
            places.tell(failed[-1])
        else:
            results.add(setting, rows, size, command)
    return failed


def _together(
    experiment: Experiment, settings: Sequence[Options], size: str, places: Places,
    results: Results, command: str,
) -> list[str]:  # fmt: skip
    """Run settings whose results depend on each other."""
    if not settings:
        return []
    try:
        rows = list(_TOGETHER[experiment.kind](settings, places))
    except DeepJoinError as error:
        return [f"{experiment.name}: {error}"]
    for setting, row in rows:
        results.add(setting, [row], size, command)
    return []


def _can_run(setting: Options, row: Options, places: Places) -> bool:
    """Return whether a setting can run; report why not."""
    reason = reason_not_to_run(setting, row, places)
    if reason:
        places.tell(f"not run: {row['label']} ({reason})")
    return not reason


def reason_not_to_run(setting: Options, row: Options, places: Places) -> str:
    """Return what a setting lacks, or an empty text."""
    if missing := places.missing(setting):
        return f"{row.get('needs', 'model')}: no {missing[0]}"
    if "method" in setting and setting["method"] not in all_methods():
        return f"this version has no method {setting['method']}"
    if setting.get("device", "cpu") != "cpu" and not _has_gpu():
        return "no GPU"
    return ""


def _has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def brief(setting: Options) -> str:
    """Write a setting on one line."""
    shown = ("method", "encoder", "sampling", "corpus", "columns", "cells_between", "cells_each")
    shown += ("local", "join", "tau", "metric", "hits")
    return ", ".join(f"{name} {setting[name]}" for name in shown if name in setting)


#: Runners that take one setting, and those that need all of an experiment at once.
_ALONE: dict[str, Callable[[Options, Places], Iterator[Options]]] = {
    "accuracy": accuracy,
    "statistics": statistics,
    "times": times,
}
_TOGETHER: dict[str, Callable[[Sequence[Options], Places], Iterator[tuple[Options, Options]]]] = {
    "labels": by_labels,
    "examples": examples,
}

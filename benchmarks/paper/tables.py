"""Results as Markdown: for each experiment a table per metric, the claims, and a plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.paper.claims import sentences, slopes
from benchmarks.paper.experiments import FOLDER as EXPERIMENTS
from benchmarks.paper.experiments import Options, names, read_experiment
from benchmarks.paper.results import FOLDER as RESULTS
from benchmarks.paper.results import Results
from benchmarks.paper.shown import NAMES, Figure, Measured

_HEAD = """# The paper's experiments, repeated

Rendered by `python -m benchmarks.paper render` from the JSON lines in `benchmarks/results`; the
experiments, with all of the paper's figures, are defined in `benchmarks/experiments`. Run one with
`python -m benchmarks.paper run NAME --data DIR`, all with `run all`.

A cell reads *ours (paper theirs)*. The corpora differ: ours are Wikipedia tables in which fewer
columns join, so compare the order of methods and the ratios between them, not the figures
themselves. `deepjoin` is the encoder shipped with the package (three layers of MiniLM), compared
with the paper's MPNet. Precision is shown twice: *by id*, as the paper counts, where ties with the
k-th best are broken by a fixed rule (smaller column, rarer values, more similar name, place);
and *with ties*, where any column as joinable as the k-th best counts. The paper counts by id.
Claims are judged by paired differences over queries: a claim holds where the 95% bootstrap interval
is above 0, fails where it is below, and is open where it contains 0. Lines from before values were
kept by query allow comparisons of means only, which prove nothing. Unless a table says
otherwise, column vectors are searched with the authors' preset, IVFPQ with HNSW.
`not run (weights)`: the weights are not published here. Rows of this page that use the shipped
column encoder were measured with the one shipped before (`deepjoin-minilm-l3`, 48 tokens), until
they are run again; the recipe's table names every model.
"""


def document(experiments: Path = EXPERIMENTS, results: Path = RESULTS) -> str:
    """Write the whole page."""
    parts = [_HEAD]
    for name in names(experiments):
        experiment = read_experiment(name, experiments)
        parts.append(section(Measured(experiment, Results(experiment, results))))
    return "\n".join(parts)


def section(measured: Measured) -> str:
    """Write one experiment."""
    experiment = measured.experiment
    parts = [f"## {experiment.title}", experiment.shows, _conditions(measured)]
    if experiment.kind == "examples":
        parts.append(_examples(measured))
    else:
        parts += [
            _table(measured, metric, block)
            for block in experiment.blocks
            for metric in measured.metrics
        ]
    parts += ["\n".join(slopes(measured)), " ".join(sentences(measured)), experiment.note.strip()]
    if experiment.plot and measured.results.lines:
        parts.append(f"![{experiment.title}](plots/{experiment.name}.svg)")
    return "\n\n".join(part for part in parts if part) + "\n"


def _conditions(measured: Measured) -> str:
    """Describe the conditions of the measurements."""
    lines = [line for line in measured.results.lines if line["size"] == measured.size]
    if not lines:
        return f"Not run. `python -m benchmarks.paper run {measured.experiment.name} --data DIR`"
    last = lines[-1]
    machines = {"gpu" in line["hardware"]: _machine(line["hardware"]) for line in lines}
    machine = "; rows of a GPU: ".join(machines[one] for one in sorted(machines))
    queries = sorted({line["row"]["queries"] for line in lines if line["row"].get("queries")})
    is_asked = queries and measured.experiment.kind != "statistics"
    asked = f" {_span(queries)} queries;" if is_asked else ""
    sizes = sorted({line["setting"]["columns"] for line in lines if "columns" in line["setting"]})
    columns = f" {_span(sizes)} columns;" if sizes else " all columns;" if is_asked else ""
    return (
        f"Size {measured.size};{columns}{asked} deepjoin {last['version']}, seed {last['seed']}; "
        f"{machine}. `{last['command']}`"
    )


def _machine(hardware: Options) -> str:
    processor = f"{hardware['cores']} cores of {hardware['model']}"
    parts = (hardware.get("gpu", ""), processor, f"{hardware['memory_gb']:g} GB")
    return ", ".join(part for part in parts if part)


def _span(numbers: Sequence[int]) -> str:
    ends = dict.fromkeys((numbers[0], numbers[-1]))
    return " to ".join(f"{one:,}" for one in ends)


def _table(measured: Measured, metric: str, block: Options) -> str:
    rows = measured.by_row(metric, block["label"])
    columns = measured.columns()
    first = measured.experiment.plot.get("rows", "")
    heads = [first, *(column["label"] for column in columns)]
    lines = [_line(heads), _line(["---"] * len(heads))]
    lines += [_line([label, *map(str, figures)]) for label, figures in rows.items()]
    if measured.experiment.kind != "statistics":
        lines += _counts(list(rows.values()))
    named = "" if "value" in columns[0] else NAMES.get(metric, metric)
    caption = ", ".join(part for part in (block["label"], named) if part)
    return "\n".join([*([f"**{caption}**", ""] if caption else []), *lines])


def _counts(rows: Sequence[Sequence[Figure]]) -> list[str]:
    """Write the number of queries of each column."""
    counts = [[one.queries for one in column if one.queries] for column in zip(*rows, strict=True)]
    if not any(counts):
        return []
    return [_line(["*queries*", *(_span(sorted(set(one))) if one else "" for one in counts)])]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _examples(measured: Measured) -> str:
    rows = [line["row"] for line in measured.results.lines if line["size"] == measured.size]
    if not rows:
        return ""
    heads = ["", "query", f"what {measured.experiment.rows[0]['label']} found"]
    lines = [_line(heads), _line(["---"] * 3)]
    for one in rows[-1]["examples"]:
        lines.append(_line([one["verdict"], _column(one["query"]), _column(one["found"])]))
    counts = f"Of all hits: {rows[-1]['wins']:,} wins, {rows[-1]['losses']:,} losses."
    return "\n".join([*lines, "", counts])


def _column(shown: Options) -> str:
    """Write a column on one line of a table."""
    cells = ", ".join(shown["cells"])
    text = f"{shown['title']} · **{shown['name']}** · {cells}, …"
    return text.removeprefix(" · ").replace("|", "\\|").replace("\n", " ")

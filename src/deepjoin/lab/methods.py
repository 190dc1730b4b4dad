"""The methods that the paper compares its own with, as rows of the table of methods.

The entry point ``deepjoin.methods`` names this table, so the product finds it without importing it.
"""

from __future__ import annotations

from deepjoin.search.methods import Method, on_use


def _encoded_by(kind: str, summary: str) -> Method:
    """Return the row of a method that is the paper's with another encoder."""
    make = on_use("deepjoin.search.vectors:encoded_by", kind)
    return Method(make, ("equi", "semantic"), ("column vectors",), summary, kind)


METHODS: dict[str, Method] = {
    "josie": Method(
        on_use("deepjoin.lab.josie:josie"),
        ("equi",),
        ("values",),
        "exact-equi by JOSIE's filters and cost model, sets held in memory",
        served=False,
    ),
    "lsh-ensemble": Method(
        on_use("deepjoin.lab.lsh_ensemble:lsh_ensemble"),
        ("equi", "semantic"),
        ("values",),
        "containment estimated by datasketch (extra baselines), tables in memory, never verified",
        served=False,
    ),
    "pexeso": Method(
        on_use("deepjoin.lab.pexeso:pexeso"),
        ("semantic",),
        ("values", "cell vectors"),
        "exact-semantic by PEXESO's pivots, grid and lemmas, all vectors held in memory",
        served=False,
    ),
    "fasttext": _encoded_by("fasttext", "mean of the fastText vectors of a column's cells"),
    "bert": _encoded_by("bert", "mean of BERT's vectors of a column's cells, not fine-tuned"),
    "mpnet": _encoded_by("mpnet", "the same by MPNet"),
    "tabert": _encoded_by("tabert", "TaBERT's column vector, by its published input"),
    "turl": _encoded_by("turl", "TURL's column vector, by its published input"),
    "mlp": _encoded_by("mlp", "last hidden layer of a perceptron trained to tell joinability"),
    "sherlock": _encoded_by("sherlock", "Sherlock's statistics of a column's cells, for numbers"),
}

"""Lakes of the experiments: built once, with what a method needs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import xxhash
from benchmarks.paper.corpora import asked_folder, corpus_folder
from benchmarks.paper.experiments import Options
from benchmarks.paper.places import Places

import deepjoin
from deepjoin import Column, Lake
from deepjoin.embed.columns import DEFAULT
from deepjoin.lab.encoders.train_fasttext import train_fasttext
from deepjoin.lab.evaluation.cache import SETTINGS
from deepjoin.lab.evaluation.task import SKETCH
from deepjoin.model import Results
from deepjoin.read.corpus import CorpusSource
from deepjoin.search.methods import method_named
from deepjoin.settings import SearchSettings

#: The fastText model of the semantic truth, and what it is trained on: as many columns as the
#: paper's models are.
FASTTEXT = "fasttext-wiki-train.bin"
_TRAINED_ON = {"corpus": "wiki-train", "columns": 30_000}

Search = Callable[[Column, int], Results]
#: The lake opened last, reused by the next setting with what its methods hold in memory.
_OPEN: dict[Path, Lake] = {}


def prepared(setting: Options, places: Places) -> Options:
    """Return the options with folders filled in, after creating missing models."""
    options = places.options(setting)
    if any(FASTTEXT in str(value) for value in options.values()):
        _make_fasttext(places)
    if "sampling" in options:
        options["encoder"] = str(_with_sampling(options.pop("sampling"), places))
    return options


def lake_for(options: Options, places: Places) -> Lake:
    """Open the lake of a setting, or build it."""
    corpus = corpus_folder(options, places)
    chosen = index_options(options)
    by = json.dumps([str(corpus), chosen, deepjoin.__version__], sort_keys=True)
    folder = places.cache / "lakes" / xxhash.xxh3_64_hexdigest(by.encode())
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder not in _OPEN:
        places.tell(f"index of {corpus.name} for {options['method']}")
        _OPEN.clear()
        device = options.get("device")
        _OPEN[folder] = deepjoin.index(
            corpus,
            folder,
            settings=SETTINGS,
            vectors=chosen,
            build=deepjoin.BuildSettings(device=device),
        )
    return _OPEN[folder]


def index_options(options: Options) -> Options:
    """Choose the vectors of an index: what its method needs, and nothing else."""
    method = method_named(options["method"])
    needs = method.needs + method.also
    chosen: Options = {"encoder": "none", "cells": "none", "sketch": 0}
    if "column vectors" in needs:
        chosen["encoder"] = options.get("encoder", "default")
        named = {"index": "vector_index", "metric": "metric"}
        chosen |= {field: options[k] for field, k in named.items() if k in options}
    if "cell vectors" in needs:
        chosen["cells"] = options.get("cells", "default")
    if "sketches" in needs:
        chosen["sketch"] = options.get("sketch", SKETCH)
    return chosen


def search_of(lake: Lake, options: Options) -> Search:
    """Return the search of a setting; tau is for methods that compare cells by meaning."""
    semantic = "cell vectors" in method_named(options["method"]).needs
    join = options.get("search_join", options["join"])
    tau = options.get("tau") if semantic and join != "equi" else None
    settings = SearchSettings(tau=tau)
    search = partial(lake.search, join=join, method=options["method"], settings=settings)
    return lambda query, k: search(query, k)


def queries_of(options: Options, places: Places) -> list[Column]:
    """Read the queries of a setting: those of its corpus, or columns of another one."""
    if "queries_of" in options:
        return list(CorpusSource(asked_folder(options, places)).columns())
    return CorpusSource(corpus_folder(options, places)).queries()[: options.get("queries")]


def _make_fasttext(places: Places) -> None:
    """Train fastText on the training corpus, unless it exists."""
    if (places.cache / FASTTEXT).exists():
        return
    corpus = corpus_folder(_TRAINED_ON, places)
    places.tell(f"training fastText on {corpus.name}")
    folder = places.cache / "lakes" / corpus.name
    folder.parent.mkdir(parents=True, exist_ok=True)
    lake = deepjoin.index(
        corpus, folder, settings=SETTINGS, encoder="none", vectors={"cells": "none"}
    )
    train_fasttext(lake, places.cache / FASTTEXT)


def _with_sampling(sampling: str, places: Places) -> Path:
    """Copy the shipped encoder, with another sampling of cells."""
    shipped = xxhash.xxh3_64_hexdigest((DEFAULT / "weights.npz").read_bytes())
    folder = places.cache / "encoders" / f"default-{sampling}-{shipped}"
    if not (folder / "encoder.json").exists():
        shutil.copytree(DEFAULT, folder, ignore=lambda *_: ["encoder.json"], dirs_exist_ok=True)
        about = json.loads((DEFAULT / "encoder.json").read_text("utf-8"))
        about["text"]["sampling"] = sampling
        (folder / "encoder.json").write_text(json.dumps(about, indent=2), "utf-8")
    return folder

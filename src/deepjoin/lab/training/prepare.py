"""From a lake to a folder with all that a training run needs: columns, pairs, the base model.

Semantic pairs need similar values and the probability that they match. On a GPU all cosines are
computed in half precision; on the CPU a scan of 8-bit vectors finds the candidates, which are then
verified with the vectors themselves. Columns held back show how well an encoder finds joinable
ones.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from deepjoin.arrays import Float, Int
from deepjoin.build.engine import Engine
from deepjoin.embed.cells import CellEncoder, match_chance
from deepjoin.embed.columns import DEFAULT
from deepjoin.embed.columns.encoder import text_settings
from deepjoin.embed.columns.text import TextSettings
from deepjoin.embed.columns.tokens import Tokens
from deepjoin.embed.columns.torch_encoder import SETTINGS_FILE
from deepjoin.errors import DeepJoinError
from deepjoin.files import replace_file
from deepjoin.lab.onnx_restore import drop_layers, restore, whole_folder
from deepjoin.lab.training.columns import Spellings, TrainingColumns, gather, read_aliases
from deepjoin.lab.training.self_join import ColumnPairs, equi_pairs, semantic_pairs
from deepjoin.lab.training.settings import PAPER_TEXT, PAPER_TOKENS, TrainInputs, TrainSettings
from deepjoin.matching.joinability import ONE, least
from deepjoin.matching.similar import SimilarValues
from deepjoin.normalise.canonical import canonical_array
from deepjoin.progress import Progress, no_progress

if TYPE_CHECKING:
    from deepjoin.lake import Lake


#: From two lists of columns, as values, to the joinability of each x with each y.
Joined = Callable[[Sequence[Int], Sequence[Int]], Float]

K = 10
#: Share of the columns held back; most columns searched; most queries.
_SHARE, _COLUMNS, _QUERIES = 0.1, 5_000, 400
#: Places of values in a list, the values near each, and their cosines.
Neighbours = tuple[Int, Int, Float]
#: Values compared with all others at a time, on the CPU and on a GPU.
_ON_CPU, _ON_GPU = 1024, 4096
#: Cosines a GPU holds at a time.
_PRODUCTS = 1 << 32
#: Near values kept of one value; a value with more of them carries no information.
_MOST = 64
#: Least joinability of hard negatives, and how many are kept for each column.
_NEIGHBOUR, _NEIGHBOURS = 0.1, 50
#: Locked by the process that works in the folder.
LOCK = "lock"
#: What the run was asked to do, written first; and what was prepared, written last.
_REQUEST, _FACTS = "asked.json", "run.json"


def split(columns: TrainingColumns, seed: int) -> tuple[Int, Int]:
    """Split columns into those to train on and those held back; no table is in both."""
    wanted = min(_SHARE * len(columns), _COLUMNS)
    tables, group = np.unique(columns.tables, return_inverse=True)
    sizes = np.bincount(group)
    order = np.random.default_rng(seed).permutation(len(tables))
    # Holding back a table larger than the share would leave little to train on.
    small = order[sizes[order] <= max(wanted, sizes.min())]
    held = small[np.cumsum(sizes[small]) - sizes[small] < wanted]
    is_held = np.isin(group, held)
    return np.flatnonzero(~is_held), np.flatnonzero(is_held)


def searched(training: Int, held: Int, seed: int) -> Int:
    """Choose the columns to search: those held back first, then others if these are few."""
    others = np.random.default_rng([seed, 3]).permutation(training)
    return np.concatenate([held, others[: max(0, _COLUMNS - len(held))]])


@dataclass(frozen=True)
class Validation:
    """Columns, the queries among them, and the joinability of each query with each column."""

    columns: TrainingColumns
    queries: Int
    joinability: Float

    @classmethod
    def of(cls, columns: TrainingColumns, held: int, joined: Joined, seed: int) -> Validation:
        """Choose queries with a joinable column among the first ``held`` columns.

        Columns of the query's own table never count.
        """
        random = np.random.default_rng([seed, 2])
        queries = random.permutation(held)[: 4 * _QUERIES]
        sets = [columns.values[columns.places(one)] for one in range(len(columns))]
        found = joined([sets[one] for one in queries], sets)
        found[columns.tables[queries][:, None] == columns.tables[None, :]] = 0
        answered = np.flatnonzero(found.max(axis=1, initial=0) > 0)[:_QUERIES]
        return cls(columns, queries[answered], found[answered])

    def precision(self, scores: Float) -> list[float]:
        """Share of the ten best by score that are as joinable as the tenth best, query by query.

        For a query with fewer than ten joinable columns, that number replaces ten.
        """
        own = self.columns.tables[self.queries][:, None] == self.columns.tables[None, :]
        shares = []
        for row, joinability in zip(np.where(own, -np.inf, scores), self.joinability, strict=True):
            k = min(K, int((joinability > 0).sum()))
            least = np.partition(joinability, -k)[-k]
            best = np.argsort(-row, kind="stable")[:k]
            shares.append(float((joinability[best] >= least).mean()))
        return shares


def value_vectors(
    columns: TrainingColumns, encoder: CellEncoder, profile: str = "default"
) -> Float:
    """Encode each value once, in the form a lake of this profile compares it."""
    values, places = np.unique(columns.values, return_index=True)
    vectors = np.zeros((values.max(initial=-1) + 1, encoder.dimension), np.float32)
    cells = columns.cells.take(pa.array(places))
    vectors[values] = encoder.encode(canonical_array(cells, profile))
    return vectors


def near_values(
    vectors: Float, floor: float, tau: float, device: str = "cpu", progress: Progress = no_progress
) -> Any:
    """Return the sparse matrix of values and the probabilities that they mean the same.

    The probability is 1 for a value and itself, one half at a cosine of tau, and 0 below the
    floor, which is less than tau.
    """
    from scipy.sparse import csr_array

    # Cosines are whole millionths, and so are the bounds: at tau itself values match.
    floor, tau = (least(bound) / ONE for bound in (floor, tau))
    if not 0 < floor < tau <= 1:
        raise DeepJoinError(
            f"`tau` is {tau}, the floor of the cell encoder {floor}; 0 < floor < tau <= 1 is "
            "allowed. Give a `tau` such as 0.7."
        )
    if vectors.ndim != 2:
        raise DeepJoinError(f"Vectors of shape {vectors.shape} came. Give one row for each value.")
    find = _on_gpu if device.startswith("cuda") else _on_cpu
    size = len(vectors)
    found = [(np.arange(size), np.arange(size), np.ones(size, np.float32))]
    for block, (places, others, cosines) in find(vectors, floor, device):
        others_only = places + block.start != others
        places = places[others_only] + block.start
        found.append((places, others[others_only], cosines[others_only]))
        progress(block.stop, size, "values compared")
    places, others, cosines = (np.concatenate(parts) for parts in zip(*found, strict=True))
    chances = np.where(places == others, 1, match_chance(cosines, floor, tau))
    return csr_array((chances.astype(np.float32), (places, others)), shape=(size, size))


def _blocks(size: int, length: int) -> Iterator[range]:
    return (range(start, min(start + length, size)) for start in range(0, size, length))


def _on_gpu(vectors: Float, floor: float, device: str) -> Iterator[tuple[range, Neighbours]]:
    """Compare in half precision: cosines are off by a thousandth."""
    import torch

    rows = torch.from_numpy(vectors).to(device, torch.float16)
    for block in _blocks(len(rows), min(_ON_GPU, max(1, _PRODUCTS // len(rows)))):
        products = rows[block.start : block.stop] @ rows.T
        cosines, others = products.topk(min(_MOST, len(rows)))
        place, rank = torch.nonzero(cosines >= floor, as_tuple=True)
        chosen = (place, others[place, rank], cosines[place, rank].float())
        places, values, near = (one.cpu().numpy() for one in chosen)
        yield block, (places, values, near)


def _on_cpu(vectors: Float, floor: float, device: str) -> Iterator[tuple[range, Neighbours]]:
    similar = SimilarValues(vectors, eight_bit=True, threads=2)
    for block in _blocks(len(vectors), _ON_CPU):
        rows = np.asarray(vectors[block.start : block.stop], np.float32)
        found = similar.nearest(rows, _MOST, least(floor))
        yield block, (found.mine, found.theirs, (found.similarities / ONE).astype(np.float32))


@dataclass(frozen=True)
class Prepared:
    """The folder of a run, which can be copied to another machine."""

    folder: Path

    @property
    def base(self) -> Path:
        """The model to start from, a sentence-transformers folder."""
        return self.folder / "base"

    @property
    def checkpoints(self) -> Path:
        """Where the run saves its state."""
        return self.folder / "checkpoints"

    @property
    def model(self) -> Path:
        """Where the finished model is assembled."""
        return self.folder / "model"

    @property
    def is_whole(self) -> bool:
        """Whether everything was written."""
        return (self.folder / _FACTS).exists()

    def request(self) -> dict[str, Any] | None:
        """Read what the run was asked to do; None if it has not begun."""
        try:
            return dict(json.loads((self.folder / _REQUEST).read_bytes()))
        except (OSError, ValueError):
            return None

    def begin(self, request: Mapping[str, Any]) -> None:
        """Remove what another run left, and write down the request."""
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            # This process holds the lock file, which must stay.
            elif path.name != LOCK:
                path.unlink()
        write_json(self.folder / _REQUEST, request)

    def facts(self) -> dict[str, Any]:
        """Read what was prepared: text settings and counts."""
        try:
            facts: dict[str, Any] = json.loads((self.folder / _FACTS).read_bytes())
        except (OSError, ValueError) as error:
            raise DeepJoinError(
                f"{self.folder} holds no prepared training run: {error}. Remove it and start again."
            ) from None
        return facts

    def columns(self) -> TrainingColumns:
        """Read the columns to train on."""
        return TrainingColumns.read(self.folder / "columns.arrow")

    def searched(self) -> TrainingColumns:
        """Read the columns to validate with."""
        return TrainingColumns.read(self.folder / "searched.arrow")

    def pairs(self) -> ColumnPairs:
        """Read the mined pairs."""
        return ColumnPairs.read(self.folder / "pairs.npz")

    def neighbours(self) -> ColumnPairs | None:
        """Read the pairs that hard negatives are taken from, if there are any."""
        path = self.folder / "neighbours.npz"
        return ColumnPairs.read(path) if path.exists() else None

    def near(self) -> Any:
        """Read the matrix of matching values; None for equi-joins."""
        from scipy.sparse import load_npz

        path = self.folder / "near.npz"
        return load_npz(path) if path.exists() else None

    def spellings(self) -> Spellings | None:
        """Read the other spellings of values, if there are any."""
        path = self.folder / "spellings.npz"
        return Spellings.read(path) if path.exists() else None


def prepare(
    lake: Lake,
    folder: Path,
    settings: TrainSettings,
    text: TextSettings,
    aliases: Path | None,
    device: str,
    progress: Progress,
    engine: Engine | None = None,
) -> None:
    """Mine the pairs of a lake and write everything into a folder, its facts last."""
    columns = gather(lake, settings.columns, settings.seed)
    training, held = split(columns, settings.seed)
    mined = columns.take(training)
    near, truth = None, {"join": settings.join, "threshold": settings.threshold}
    if settings.join == "semantic":
        from scipy.sparse import save_npz

        encoder = lake.context().cell_encoder()
        tau = encoder.tau if settings.tau is None else settings.tau
        floor = encoder.floor if settings.tau is None else 0.9 * settings.tau
        vectors = value_vectors(columns, encoder, lake.settings.profile)
        near = near_values(vectors, floor, tau, device, progress)
        if settings.recipe == "paper":
            # The paper's definition: a value matches at tau, where its chance is one half, or not.
            near.data = (near.data >= 0.5).astype(near.data.dtype)
            near.eliminate_zeros()
        truth |= {"cells": encoder.name, "cells_digest": encoder.digest, "tau": tau}
        save_npz(folder / "near.npz", near, compressed=False)

    def pairs_from(threshold: float, most: int) -> ColumnPairs:
        rest = (threshold, most, settings.seed, progress, engine)
        return equi_pairs(mined, *rest) if near is None else semantic_pairs(mined, near, *rest)

    pairs = pairs_from(settings.threshold, settings.pairs)
    pairs.write(folder / "pairs.npz")
    if settings.negatives in ("hard", "nearest"):
        pairs_from(_NEIGHBOUR, _NEIGHBOURS).write(folder / "neighbours.npz")
    if aliases is not None:
        profile = lake.settings.profile
        Spellings.of(mined, read_aliases(aliases), profile).write(folder / "spellings.npz")
    mined.write(folder / "columns.arrow")
    columns.take(searched(training, held, settings.seed)).write(folder / "searched.arrow")
    counts = {"columns": len(mined), "held_back": len(held), "pairs": len(pairs)}
    write_json(folder / _FACTS, {"text": asdict(text), "truth": truth, **counts})


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file that other processes wait for, atomically."""
    replace_file(path, json.dumps(content, indent=2) + "\n")


def write_base(spec: str, folder: Path, layers: int | None, device: str | None) -> None:
    """Write the base model: the shipped one, a folder in either form, or a public name."""
    source = DEFAULT if spec == "default" else Path(spec)
    if (source / "encoder.json").is_file():
        restore(source, folder, layers)
        return
    from deepjoin.embed.columns.torch_encoder import TorchEncoder, load_model, quiet

    TorchEncoder(spec, device=device)  # raises with the name of any missing or damaged file
    with quiet(), whole_folder(folder) as aside:
        model = load_model(spec, "cpu")
        if layers is not None:
            drop_layers(model, layers, spec)
        model.save(str(aside), create_model_card=False)
        if (source / SETTINGS_FILE).is_file():
            shutil.copyfile(source / SETTINGS_FILE, aside / SETTINGS_FILE)


def base_text(
    folder: Path, spec: str, inputs: TrainInputs, settings: TrainSettings
) -> TextSettings:
    """Return the text settings, by default those of the base model, whose input they must fit."""
    from deepjoin.embed.columns.torch_encoder import load_model, positions

    # Checked before pairs are mined, which may take hours.
    model = load_model(str(folder), "cpu")
    tokenizer = model.tokenizer.backend_tokenizer.to_str()
    given: dict[str, Any] = {"prompt": settings.prompt}
    if settings.recipe == "paper":
        # What the prompt and special tokens take of the limit.
        around = Tokens.from_text(tokenizer, 0, settings.prompt).limit
        given |= {**PAPER_TEXT, "tokens": min(PAPER_TOKENS, positions(model)) - around}
    text = text_settings(folder / SETTINGS_FILE, given | inputs.text())
    Tokens.from_text(tokenizer, text.tokens, text.prompt).check(positions(model), spec)
    return text

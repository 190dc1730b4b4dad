"""The encoders of an evaluation: each method gets those it needs, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from deepjoin.embed.columns.kinds import option_of, split_kind
from deepjoin.errors import DeepJoinError
from deepjoin.search.methods import method_named
from deepjoin.settings import Vectors

#: Numbers in a sketch, for methods that need one, unless told otherwise.
SKETCH = 768


@dataclass(frozen=True)
class Chosen:
    """What an index may be built with."""

    #: Column encoders by the kind of method they are for.
    encoders: Mapping[str, str]
    cells: str
    sketch: int

    @classmethod
    def of(
        cls, encoder: str | Sequence[str] | None, cells: str | None, sketch: int | None
    ) -> Chosen:
        """Sort encoders by kind; the one without a kind is the default unless given."""
        specs = [encoder] if isinstance(encoder, str) else encoder or []
        encoders: dict[str, str] = {}
        for spec in specs:
            known = encoders.setdefault(split_kind(spec)[0], spec)
            if known != spec:
                raise DeepJoinError(
                    f"Encoders '{known}' and '{spec}' are for the same method. Give one of them, "
                    "and evaluate with the other in a run of its own."
                )
        encoders.setdefault("", "default")
        return cls(encoders, cells or "default", SKETCH if sketch is None else sketch)

    def check(self, methods: Iterable[str]) -> None:
        """Refuse methods whose encoder is not there."""
        for method in methods:
            kind = method_named(method).kind
            if kind not in self.encoders:
                raise DeepJoinError(
                    f"Method '{method}' needs an encoder of its own. Add {option_of(kind)}"
                )

    def vectors(self, needs: Collection[str], kind: str = "") -> Vectors:
        """Choose what an index is to have for what a method needs."""
        return Vectors(
            encoder=self.encoders[kind] if "column vectors" in needs else "none",
            cells=self.cells if "cell vectors" in needs else "none",
            sketch=self.sketch if "sketches" in needs else 0,
        )

    def of_method(self, method: str) -> Vectors:
        """Choose what an index is to have for a method."""
        row = method_named(method)
        return self.vectors(row.needs + row.also, row.kind)

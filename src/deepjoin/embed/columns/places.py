"""Whether a model that is not here may be a public one."""

from __future__ import annotations

from pathlib import Path

from deepjoin.errors import DeepJoinError


def check_place(spec: str, others: str = "'default', 'none', ") -> None:
    """Refuse a folder that should be there; a name such as ``owner/model`` need not be."""
    if not Path(spec).is_dir() and _is_path(spec):
        raise DeepJoinError(
            f"There is no encoder folder '{spec}'. Give {others}a model folder, or the name of a "
            "public model."
        )


def _is_path(spec: str) -> bool:
    path = Path(spec)
    return path.is_absolute() or spec[:1] in (".", "~") or len(path.parts) > 2

"""The Ray cluster that work is done on: found, joined or started, and described."""

from __future__ import annotations

import logging
import socket
from typing import Any

from deepjoin.build.engine import Told
from deepjoin.errors import DeepJoinError

_ANSWER_SECONDS = 5.0
#: How Ray begins to say that this machine is part of no cluster; everything else is a failure.
_NONE = "Could not find any running Ray instance"
#: Its lines would stand between ours; they are in its own files as well.
_QUIETLY = {"log_to_driver": False, "logging_level": logging.ERROR}


def join(ray: Any, address: str, told: Told) -> None:
    """Join the cluster at an address, or without one that of this machine, or start one."""
    from ray.exceptions import RayError

    found = address
    try:
        found = address if address not in ("", "auto") else _found()
        _check_answers(found)
        ray.init(address=address or "auto", **_QUIETLY)
    except (OSError, ValueError, RuntimeError, RayError) as error:
        if address or _NONE not in str(error):
            raise _not_joined(address, found, error) from None
        ray.init(address="local", include_dashboard=False, **_QUIETLY)
        told(f"No Ray cluster is running: started one here, {described(ray)}.")
        return
    told(f"Working on the Ray cluster at {address_of(ray)}: {described(ray)}.")


def _found() -> str:
    """Ask Ray which cluster this machine is part of."""
    try:
        from ray._private.services import canonicalize_bootstrap_address
    except ImportError:  # nobody promised that it stays there
        return "auto"
    return str(canonicalize_bootstrap_address("auto"))


def _not_joined(address: str, found: str, error: Exception) -> DeepJoinError:
    said = _one_line(error)
    if error.__cause__ is not None:  # a mismatch of versions, for one, is told there only
        said += f" ({_one_line(error.__cause__)})"
    remedy = "Start one with: ray start --head, or leave the address out."
    if not address:
        remedy = "End what is left of it with: ray stop, or name another with --ray-address."
    return DeepJoinError(f"No Ray cluster can be joined at '{found}': {said}. {remedy}")


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).partition("Traceback")[0].split())
    return text[:200].rstrip(".: ") or type(error).__name__


def _check_answers(address: str) -> None:
    """See that somebody is at an address: Ray would wait for a minute."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), _ANSWER_SECONDS).close()


def described(ray: Any) -> str:
    """Say what a cluster has."""
    found, nodes = ray.cluster_resources(), sum(node["Alive"] for node in ray.nodes())
    counts = {
        "node": nodes,
        "processor": int(found.get("CPU", 0)),
        "GPU": int(found.get("GPU", 0)),
    }
    return ", ".join(
        f"{count:,} {name}{'' if count == 1 else 's'}" for name, count in counts.items()
    )


def address_of(ray: Any) -> str:
    """Say where the cluster is that this process is part of."""
    return str(ray.get_runtime_context().gcs_address)

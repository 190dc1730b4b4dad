"""Which of several servers holds which share of a lake's vectors."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def assigned(held: Sequence[Collection[int]]) -> list[int | None]:
    """Give as many servers as can be a share that they hold, each another one; None to the rest.

    >>> assigned([{0, 1}, {0}, {1}])
    [1, 0, None]
    """
    owners: dict[int, int] = {}

    def found(server: int, seen: set[int]) -> bool:
        """Give a server a share; who has it already takes another one, if there is one."""
        for share in sorted(held[server]):
            if share not in seen:
                seen.add(share)
                if share not in owners or found(owners[share], seen):
                    owners[share] = server
                    return True
        return False

    for server in range(len(held)):
        found(server, set())
    shares = {server: share for share, server in owners.items()}
    return [shares.get(server) for server in range(len(held))]


def completed(shares: Sequence[int | None]) -> list[int]:
    """Give the servers without a share those that nobody has, in order.

    >>> completed([2, None, 0])
    [2, 1, 0]
    """
    free = iter(sorted(set(range(len(shares))) - set(shares)))
    return [next(free) if share is None else share for share in shares]

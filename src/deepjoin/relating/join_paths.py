"""The shortest ways through a graph whose neighbours are costly to find: from both ends at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heappop, heappush

#: The neighbours of a node and how strong each edge is; edges lead both ways.
Near = Callable[[int], Mapping[int, float]]
Path = tuple[int, ...]

#: How many ways are followed in search of the best of one length.
_STEPS = 20_000


def shortest_paths(
    near: Near, name: Callable[[int], str], start: int, end: int, longest: int, most: int
) -> tuple[list[Path], bool]:
    """Return simple paths between two nodes, the shortest first, and whether none was missed.

    Of paths of one length, that with the strongest weakest edge comes first, then by name.

    >>> graph = {0: {1: 1.0, 2: 0.6}, 1: {0: 1.0, 3: 0.7}, 2: {0: 0.6, 3: 0.9}, 3: {1: 0.7, 2: 0.9}}
    >>> shortest_paths(graph.__getitem__, str, 0, 3, longest=4, most=5)
    ([(0, 1, 3), (0, 2, 3)], True)
    """
    found: list[Path] = []
    halves = _Half(near, start), _Half(near, end)
    whole = True
    for length in range(1, longest + 1):
        min(halves, key=lambda half: len(half.frontier)).grow()
        paths, all_of_them = _of_length(halves, name, length, most - len(found))
        found += paths
        whole &= all_of_them
        if len(found) == most:
            break
    return found, whole


class _Half:
    """All that is within some edges of one end."""

    def __init__(self, near: Near, end: int) -> None:
        self._near = near
        self.end, self.radius = end, 0
        #: Nodes whose neighbours are known, and nodes whose are to be found next.
        self.known: dict[int, Mapping[int, float]] = {}
        self.frontier: dict[int, float] = {end: 1.0}

    def grow(self) -> None:
        """Find the neighbours of the outermost nodes, those of the best edges first."""
        nodes = sorted(self.frontier, key=lambda node: -self.frontier[node])
        for node in nodes:
            self.known[node] = self._near(node)
        self.frontier = {}
        # A node is reached by the first that leads to it; in bulk, since they may be millions.
        for node in reversed(nodes):
            self.frontier.update(self.known[node])
        for node in self.known.keys() & self.frontier.keys():
            del self.frontier[node]
        self.radius += 1

    def steps(self) -> dict[int, dict[int, float]]:
        """Return the known edges turned round: from any node to those whose neighbour it is."""
        turned: dict[int, dict[int, float]] = {}
        for node, others in self.known.items():
            for other, strength in others.items():
                turned.setdefault(other, {})[node] = strength
        return turned


def _of_length(
    halves: tuple[_Half, _Half], name: Callable[[int], str], length: int, most: int
) -> tuple[list[Path], bool]:
    """Return the best paths of one length, and whether they are sure to be the best."""
    first, last = halves
    back = last.steps()
    alive = _alive(halves, back, length)
    found: list[Path] = []
    heap: list[tuple[float, tuple[str, ...], Path]] = [(-1.0, (name(first.end),), (first.end,))]
    for _ in range(_STEPS):
        if not heap or len(found) == most:
            return found, True
        weakest, names, path = heappop(heap)
        done = len(path) - 1
        if done == length:
            found.append(path)
            continue
        steps = (first.known if done < first.radius else back).get(path[-1], {})
        for node in alive[length - done - 1].intersection(steps).difference(path):
            step = max(weakest, -steps[node]), (*names, name(node)), (*path, node)
            heappush(heap, step)
    return found, False


def _alive(
    halves: tuple[_Half, _Half], back: dict[int, dict[int, float]], length: int
) -> list[set[int]]:
    """List, for every number of edges, the nodes from which so many may lead to the end."""
    first, last = halves
    alive = [{last.end}]
    for left in range(1, length + 1):
        if left <= last.radius:
            beyond = {other for node in alive[-1] for other in last.known.get(node, {})}
        else:
            beyond = {
                node for node, others in first.known.items() if not alive[-1].isdisjoint(others)
            }
        alive.append(beyond - {last.end})
    return alive

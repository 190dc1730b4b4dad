"""The partitions of a spill, merged on several threads and yielded in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from deepjoin.store.values.merge import Postings, merge_rows
from deepjoin.store.values.spill import Spill

#: Neighbouring partitions with fewer rows than this are merged as one: a merge has a price.
_FEW = 1 << 15


def merged_partitions(spill: Spill, pool: ThreadPoolExecutor, threads: int) -> Iterator[Postings]:
    """Merge a sealed spill from its lowest hashes to its highest, a few partitions ahead."""
    under_way: deque[Future[Postings]] = deque()
    for group in _groups(spill.rows):
        under_way.append(pool.submit(_merge, spill, group))
        if len(under_way) > threads:
            yield under_way.popleft().result()
    while under_way:
        yield under_way.popleft().result()


def _groups(rows: Sequence[int]) -> Iterator[range]:
    """Put partitions together until each group is worth its while."""
    start = held = 0
    for number, count in enumerate(rows):
        held += count
        if held >= _FEW or number + 1 == len(rows):
            yield range(start, number + 1)
            start, held = number + 1, 0


def _merge(spill: Spill, group: range) -> Postings:
    return merge_rows([batch for number in group for batch in spill.take(number)])

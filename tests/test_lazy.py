"""Cached properties: once per object, and no object waits for another."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

from deepjoin.lazy import cached_property


class Counted:
    """Counts how often its value is computed, and waits for whatever it is given."""

    def __init__(self, wait: threading.Event | None = None) -> None:
        self.computed = 0
        self._wait = wait

    @cached_property
    def value(self) -> int:
        """Seven, once there is nothing to wait for."""
        self.computed += 1
        if self._wait is not None:
            assert self._wait.wait(timeout=60)
        return 7


def test_a_long_computation_keeps_no_other_object_waiting() -> None:
    event = threading.Event()
    slow, quick = Counted(event), Counted()
    with ThreadPoolExecutor(3) as pool:
        both = [pool.submit(getattr, slow, "value") for _ in range(2)]
        assert pool.submit(getattr, quick, "value").result(timeout=30) == 7
        event.set()
        assert [one.result(timeout=30) for one in both] == [7, 7]
    assert (slow.computed, quick.computed) == (1, 1)


def test_an_object_with_a_cached_value_can_be_pickled() -> None:
    one = Counted()
    assert one.value == 7
    assert pickle.loads(pickle.dumps(one)).__dict__ == {"computed": 1, "_wait": None, "value": 7}

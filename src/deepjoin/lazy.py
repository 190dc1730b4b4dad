"""A cached property that makes threads wait for each other only on the same object."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property(functools.cached_property):
        """Compute a value on first access, once per object.

        Python 3.11 holds one lock per property for all objects, so that one long search would make
        every other search of the process wait; from 3.12 there is no lock, and two threads may both
        load the same model. Here the lock belongs to the object, and goes once the value is there.
        """

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            values, name = instance.__dict__, self.attrname
            lock_name = f"_computing_{name}"
            # setdefault is atomic: all threads that come before the value share one lock.
            with values.setdefault(lock_name, threading.RLock()):
                if name not in values:
                    values[name] = self.func(instance)
            values.pop(lock_name, None)  # a lock cannot be pickled
            return values[name]

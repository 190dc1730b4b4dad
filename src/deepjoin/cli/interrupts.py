"""Ctrl-C and SIGTERM end a command within two seconds, no matter what it computes."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType

MESSAGE = "deepjoin: Interrupted. The index is consistent; run the same command to resume."
#: Seconds that an interrupted command has to end by itself, and so remove its temporary files.
_GRACE = 0.7
_STDERR = 2


class Interrupts:
    """Raises KeyboardInterrupt at the first SIGINT or SIGTERM, and ends the process soon after.

    Python runs signal handlers between two steps of the main thread. While Faiss or ONNX Runtime
    compute, or while threads are joined at exit, the next step may be minutes away. So a thread
    that the C part of the handler wakes ends the process after a grace period. This is safe at
    any point: an index survives a writer that is killed, and the next writer cleans up.
    """

    def __init__(self) -> None:
        #: The exit status: 130 for Ctrl-C, 143 for SIGTERM.
        self.status = 128 + signal.SIGINT
        #: Whether KeyboardInterrupt was raised, and whether the command has ended by itself.
        self.is_raised = self._is_over = False
        self._unsaid = threading.Lock()

    def watch(self) -> None:
        """Handle signals until the process ends."""
        # Registered first, so run last: what else runs at exit has removed its files by then.
        atexit.register(self._end)
        sys.unraisablehook = self._ignored
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            # A script that starts a command in the background may have set "ignore".
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._interrupt)
        threading.Thread(target=self._enforce, args=(woken,), daemon=True).start()

    def finish(self, status: int) -> int:
        """Let the process end with this status once what runs at exit is done; returns it."""
        if not self.is_raised:
            self.status, self._is_over = status, True
        return status

    def is_first_to_say(self) -> bool:
        """Tell one caller, of the two threads that may call it, to write the message."""
        return self._unsaid.acquire(blocking=False)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.status = 128 + number
        if not self.is_raised:
            self.is_raised = True
            raise KeyboardInterrupt

    def _ignored(self, raised: sys.UnraisableHookArgs) -> None:
        """Print errors that Python cannot raise, as those in finalizers, until a signal came.

        It may come while a finalizer runs; then only the thread ends the process. And readers
        that it ends are taken apart in any order, so one may find its connection closed.
        """
        if not self.is_raised:
            sys.__unraisablehook__(raised)

    def _end(self) -> None:
        """Exit with the status of the signal or the command.

        Python itself would end as if by SIGINT where the exception came in code that was made at
        run time, as that of dataclasses is; and it would take .1 to .3 s to take all modules apart.
        """
        if self.is_raised or self._is_over:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            os._exit(self.status)

    def _enforce(self, woken: int) -> None:
        """Wait for a signal that this object handles, then for the grace period, and exit."""
        while True:
            (number,) = os.read(woken, 1)
            # A server and a training run replace the handler and stop in their own way.
            if signal.getsignal(number) == self._interrupt:
                break
        time.sleep(_GRACE)
        if self.is_first_to_say():
            # Not through sys.stderr, whose lock the main thread may hold. On a terminal the
            # message replaces the progress bar.
            start = "\r\x1b[K" if os.isatty(_STDERR) else ""
            with suppress(OSError):
                os.write(_STDERR, f"{start}{MESSAGE}\n".encode())
        os._exit(128 + number)

"""Wakes greenlets at a point in time, to some tens of microseconds.

gevent's own timers wait in ``epoll_wait``, which counts whole milliseconds and rounds up, so a job
would begin up to a millisecond after its intended start, and every response time would have that
in it. A timerfd is a file that becomes readable at a time in nanoseconds.
https://man7.org/linux/man-pages/man2/timerfd_create.2.html

Waking takes a tenth of a millisecond, most of it on an idle processor that has to begin to work. So
whoever sleeps is woken early, by twice as long as waking took lately, and looks at the clock until
the time has come.

Guarantees: nobody goes on early. Does not guarantee that nobody goes on late: the processor and
the other greenlets have to be free.
"""

from __future__ import annotations

import ctypes
import heapq
import itertools
import os
import struct
from contextlib import suppress
from time import monotonic_ns
from typing import Final

import gevent
from gevent.event import Event

ABSOLUTE: Final = 1  # TFD_TIMER_ABSTIME
SETTING: Final = struct.Struct("@4q")  # struct itimerspec: interval, then time; seconds, ns
NS: Final = 1_000_000_000
EARLY_NS_MAX: Final = 250_000
SMOOTH: Final = 16  # wakings that an average is of


class Timer:
    """One per process; it has a file descriptor until the process ends."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        self._file = self._libc.timerfd_create(1, flags)  # CLOCK_MONOTONIC
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        self._waiting: list[tuple[int, int, Event]] = []
        self._order = itertools.count()
        self._early_ns = EARLY_NS_MAX
        self._watcher = gevent.get_hub().loop.io(self._file, 1)  # 1: readable
        self._watcher.start(self._fire)

    def sleep_until(self, at_ns: int) -> None:
        """Returns at ``at_ns`` of the monotonic clock, or at once where that is over."""
        if at_ns - self._early_ns > monotonic_ns():
            woken = Event()
            heapq.heappush(self._waiting, (at_ns, next(self._order), woken))
            if self._waiting[0][2] is woken:
                self._arm()
            woken.wait()
            took_ns = monotonic_ns() - (at_ns - self._early_ns)
            self._early_ns += (min(2 * took_ns, EARLY_NS_MAX) - self._early_ns) // SMOOTH
        while monotonic_ns() < at_ns:
            pass

    def _arm(self) -> None:
        """For whoever is next. A time that is over already fires at once."""
        wake_ns = max(1, self._waiting[0][0] - self._early_ns)  # 0 would disarm it
        setting = SETTING.pack(0, 0, wake_ns // NS, wake_ns % NS)
        if self._libc.timerfd_settime(self._file, ABSOLUTE, setting, None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")

    def _fire(self) -> None:
        with suppress(BlockingIOError):  # set anew since it became readable
            os.read(self._file, 8)
        until_ns = monotonic_ns() + self._early_ns
        while self._waiting and self._waiting[0][0] <= until_ns:
            heapq.heappop(self._waiting)[2].set()
        if self._waiting:
            self._arm()

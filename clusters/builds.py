"""Builds side by side, each after what it stands on, in the order in which they are wanted.

Guaranteed: a build that fails ends only what stands on it, and is told with what it said. The time
left is an estimate: what the builds took on two quiet cores, scaled by how long those took here
that are done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

AT_ONCE = 2
SAY_EVERY_S = 20.0


@dataclass
class Build:
    """One thing to build; ``after`` names the build that it stands on, if that is one of these."""

    name: str
    after: str | None
    takes_s: float
    """On two quiet cores, beside another build."""
    began: float | None = field(default=None, init=False)
    took_s: float | None = field(default=None, init=False)
    failure: Exception | None = field(default=None, init=False)

    @property
    def over(self) -> bool:
        """It is built, or never will be."""
        return self.took_s is not None or self.failure is not None


class Builds:
    """Builds that have begun. They go on in threads that an interrupted command does not wait for:
    a build takes minutes, and the engine gives it up when its connection is closed, as it is when
    the process ends."""

    def __init__(
        self, builds: Sequence[Build], make: Callable[[str], None], say: Callable[[str], None]
    ) -> None:
        self._builds = {build.name: build for build in builds}
        self._make = make
        self._say = say
        self._changed = threading.Condition()
        self._told_s = time.monotonic()
        if builds:
            takes = f"{minutes(self.left_s())} on two cores that do nothing else"
            say(f"building {_images(len(builds))}: {', '.join(self.names)}; {takes}")
        for _ in range(min(AT_ONCE, len(builds))):
            threading.Thread(target=self._work, daemon=True).start()

    @property
    def names(self) -> list[str]:
        """What is built, in the order in which it was wanted."""
        return [*self._builds]

    @property
    def over(self) -> bool:
        """Nothing is being built any more."""
        with self._changed:
            return all(build.over for build in self._builds.values())

    def ended(self, names: Iterable[str]) -> bool:
        """Whether all of these are built or failed; what was never to be built has ended."""
        with self._changed:
            return all(build.over for build in self._these(names))

    def failure(self, names: Iterable[str]) -> Exception | None:
        """Why one of these could not be built, if so."""
        with self._changed:
            return next((b.failure for b in self._these(names) if b.failure is not None), None)

    def wait(self, names: Collection[str] | None = None, timeout_s: float | None = None) -> None:
        """Wait until all of these have ended (all, if none are named), or for as long; say every
        now and then how long it still takes."""
        waited = self._builds if names is None else names
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.ended(waited) and (until is None or time.monotonic() < until):
            with self._changed:
                self._changed.wait(0.2)
            if time.monotonic() - self._told_s > SAY_EVERY_S and not self.over:
                self._told_s = time.monotonic()
                self._say(self.status())

    def status(self) -> str:
        """``building 2 images: redis, toxiproxy (3 of 5 done), about 2 minutes left``."""
        with self._changed:
            running = [b.name for b in self._builds.values() if b.began is not None and not b.over]
            done = sum(build.over for build in self._builds.values())
        of = f"{done} of {len(self._builds)} done"
        left = minutes(self.left_s())
        return f"building {_images(len(running))}: {', '.join(running)} ({of}), {left} left"

    def left_s(self) -> float:
        """An estimate: the longest chain or what is left of all, whichever is more."""
        now = time.monotonic()
        with self._changed:
            builds = list(self._builds.values())
            took = [(b.took_s, b.takes_s) for b in builds if b.took_s is not None]
            scale = sum(s for s, _ in took) / sum(s for _, s in took) if took else 1.0
            left = {
                b.name: 0.0
                if b.over
                else max(b.takes_s * scale - (now - b.began if b.began else 0.0), 1.0)
                for b in builds
            }
            chains = [self._chain_s(build, left) for build in builds]
        return max([sum(left.values()) / AT_ONCE, *chains])

    def _chain_s(self, build: Build, left: dict[str, float]) -> float:
        below = self._builds.get(build.after or "")
        return left[build.name] + (self._chain_s(below, left) if below else 0.0)

    def _these(self, names: Iterable[str]) -> list[Build]:
        return [self._builds[name] for name in names if name in self._builds]

    def _next(self) -> Build | None:
        """The first that can begin; None when there is nothing more to do for this thread."""
        with self._changed:
            while any(b.began is None and not b.over for b in self._builds.values()):
                for build in self._builds.values():
                    below = self._builds.get(build.after or "")
                    if build.began is not None or build.over or (below and not below.over):
                        continue
                    if below and below.failure is not None:
                        build.failure = below.failure
                        self._changed.notify_all()
                        break
                    build.began = time.monotonic()
                    return build
                else:
                    self._changed.wait()
        return None

    def _work(self) -> None:
        while (build := self._next()) is not None:
            assert build.began is not None
            failure: Exception | None = None
            try:
                self._make(build.name)
            except Exception as error:  # noqa: BLE001 - told to whoever asks for it
                failure = error
            took_s = time.monotonic() - build.began
            if failure is None:
                self._say(f"{build.name}: done in {took_s:.1f} s")
            with self._changed:
                build.failure, build.took_s = failure, took_s
                self._changed.notify_all()


def minutes(seconds: float) -> str:
    """``about 3 minutes``, for people."""
    if seconds < 50:
        return f"about {max(10, round(seconds, -1)):.0f} seconds"
    whole = max(1, round(seconds / 60))
    return f"about {whole} minute{'s' * (whole != 1)}"


def _images(count: int) -> str:
    return f"{count} image{'s' * (count != 1)}"

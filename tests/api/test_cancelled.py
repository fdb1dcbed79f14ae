"""A task that is cancelled while a thread works for it leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading

import pytest

from lockbench.api.cluster import to_its_end


@pytest.mark.parametrize("fails", [False, True])
def test_who_is_cancelled_waits_for_the_end_and_undoes_it(fails: bool) -> None:
    begun, go_on = threading.Event(), threading.Event()
    done: list[str] = []

    def start() -> None:
        begun.set()
        go_on.wait()
        if fails:
            raise OSError("it did not start")
        done.append("started")

    async def main() -> None:
        task = asyncio.ensure_future(to_its_end(start, lambda: done.append("stopped")))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert done == ([] if fails else ["started", "stopped"])


def test_who_is_not_cancelled_has_the_result() -> None:
    undone: list[str] = []
    assert asyncio.run(to_its_end(lambda: 7, lambda: undone.append("stopped"))) == 7
    assert undone == []

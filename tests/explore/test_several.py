"""Several locks at once: a process for each, not too many, and none is left when one is stopped."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from lockbench.explore import several
from lockbench.explore.several import at_once, explore_several
from tests.eventually import eventually

# What stands in for ``lockbench``: its arguments are Python.
PROGRAM = (sys.executable, "-c", "import sys; exec(sys.argv[1])")
# Says that it runs, and that it was asked to end, in a file of its own.
LASTING = """
import os, pathlib, signal, time
at = pathlib.Path({at!r})
def end(*_):
    at.write_text("cleared away")
    os._exit(130)
signal.signal(signal.SIGTERM, end)
at.write_text("runs")
print("begun", flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several, "PROGRAM", PROGRAM)
    monkeypatch.setattr(several, "at_once", lambda: 2)


def saying(code: str) -> Callable[[], Sequence[str]]:
    return lambda: [code]


def silent(_: str) -> None:
    pass


def test_the_memory_that_is_free_at_first_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several, "memory_bytes", lambda: 20)
    lines: list[str] = []
    says = saying(f"import os; print(os.environ[{several.MEMORY!r}])")
    explore_several(dict.fromkeys("abc", says), lines.append)
    explore_several({"alone": says}, lines.append)
    assert sorted(lines) == ["a: 10", "alone: 20", "b: 10", "c: 10"]


@pytest.mark.parametrize(("share", "memory"), [(None, 20), ("10", 10), ("30", 20)])
def test_an_exploration_takes_its_share_and_no_more_than_is_free(
    share: str | None, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=20))
    monkeypatch.delenv(several.MEMORY, raising=False)
    if share is not None:
        monkeypatch.setenv(several.MEMORY, share)
    assert several.memory_bytes() == memory


@pytest.mark.parametrize(("cores", "locks"), [(None, 2), (1, 2), (2, 4), (8, 16)])
def test_more_locks_than_cores_are_explored_at_once(
    cores: int | None, locks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "cpu_count", lambda: cores)
    assert at_once() == locks


def test_each_line_names_its_lock_and_each_lock_has_its_code() -> None:
    lines: list[str] = []
    codes = explore_several(
        {
            "a": saying("print('one'); print('two')"),
            "b": saying("print('none', file=sys.stderr); sys.exit(254)"),
            "late": lambda: None,
        },
        lines.append,
    )
    assert codes == {"a": 0, "b": 254}, "nothing was begun of the last one"
    assert sorted(lines) == ["a: one", "a: two", "b: none"]
    assert lines.index("a: one") < lines.index("a: two")


def test_so_many_run_at_once_and_no_more(tmp_path: Path) -> None:
    """Each waits until there are two, or was once, and writes how many it saw at its begin."""
    code = f"""
import os, pathlib, time
here = pathlib.Path({str(tmp_path)!r})
(here / f"on-{{os.getpid()}}").touch()
until = time.monotonic() + 60
while len([*here.glob("on-*")]) < 2 and not [*here.glob("saw-*")]:
    assert time.monotonic() < until
    time.sleep(0.01)
(here / f"saw-{{len([*here.glob('on-*')])}}").touch()
(here / f"on-{{os.getpid()}}").unlink()
"""
    assert set(explore_several(dict.fromkeys("abcde", saying(code)), silent).values()) == {0}
    assert {one.name for one in tmp_path.glob("saw-*")} <= {"saw-1", "saw-2"}
    assert (tmp_path / "saw-2").exists()


@pytest.mark.parametrize("stopped_by", ["a signal", "an output that is gone"])
def test_what_is_stopped_leaves_no_process(tmp_path: Path, stopped_by: str) -> None:
    lasting = [tmp_path / name for name in "abc"]
    begun = {at.name: saying(LASTING.format(at=str(at))) for at in lasting}

    def gone(_: str) -> None:
        if stopped_by == "an output that is gone" and all(at.exists() for at in lasting[:2]):
            raise BrokenPipeError

    def interrupt() -> None:
        eventually(lambda: all(at.exists() and at.read_text() for at in lasting[:2]))
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)

    if stopped_by == "a signal":
        threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises((KeyboardInterrupt, BrokenPipeError)):
        explore_several(begun, gone)
    assert [at.read_text() for at in lasting[:2]] == ["cleared away"] * 2
    assert not lasting[2].exists(), "it was never begun"

"""What is left of a struck bench is found, its neighbours are not; each wrong word is, too."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from lockbench.clusters.engine import owner
from lockbench.clusters.engine.docker import Container, Network
from lockbench.history.op import F, Object, Type
from lockbench.history.recorder import Recorder
from lockbench.history.recording import write_meta
from lockbench.workloads.fork_server import RUN_ENVIRONMENT
from soak.aftermath import Aftermath, Left, Said, left_of, readable, went_on_after, wrong_words

BENCH = "4242:77:here/boot/1"
NO_SESSION = 2**22 + 1


# --- what is left --------------------------------------------------------------------------------


@dataclass
class FakeEngine:
    """Has one container and one network of each owner."""

    owners: tuple[str, ...]

    def containers(self, labels: dict[str, str]) -> list[Container]:
        return [Container(f"c{o}", "server") for o in self.owners if labels == {owner.OWNER: o}]

    def networks(self, labels: dict[str, str]) -> list[Network]:
        return [Network(f"n{o}", "net") for o in self.owners if labels == {owner.OWNER: o}]


@contextmanager
def sleeping(mark: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
        env={RUN_ENVIRONMENT: mark},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        **options,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it is what it will be
        try:
            yield process
        finally:
            process.kill()


def found(tmp_path: Path, session: int = NO_SESSION, *owners: str) -> frozenset[Left]:
    return left_of(BENCH, session, tmp_path, FakeEngine(owners))  # type: ignore[arg-type]


def test_its_containers_and_networks_are_left_and_not_those_of_another(tmp_path: Path) -> None:
    kinds = sorted(one.kind for one in found(tmp_path, NO_SESSION, BENCH, "1:2:here/boot/1"))
    assert kinds == ["container", "network"]
    assert not found(tmp_path, NO_SESSION, "1:2:here/boot/1")


def test_a_process_with_its_mark_is_left_and_its_neighbour_is_not(tmp_path: Path) -> None:
    with sleeping(f"run@{BENCH}") as ours, sleeping("run@1:2:here/boot/1"):
        assert [one.name.split()[0] for one in found(tmp_path)] == [str(ours.pid)]
    assert not found(tmp_path)


def test_a_process_of_its_session_is_left_whatever_its_mark(tmp_path: Path) -> None:
    with sleeping("", start_new_session=True) as ours:
        (one,) = found(tmp_path, ours.pid)
        assert (one.kind, one.name.split()[0]) == ("process", str(ours.pid))


def test_a_file_in_the_temporary_folder_is_left(tmp_path: Path) -> None:
    (tmp_path / "lockbench-forgotten").mkdir()
    assert [str(one) for one in found(tmp_path)] == ["file lockbench-forgotten"]


# --- words ---------------------------------------------------------------------------------------

FAILED = {"judgement": "failed", "why": "worker-1 ended during the load", "ending": "bench"}
GREEN = {"judgement": "as expected", "why": "every promise was kept", "ending": "ok"}
WORSE = {"judgement": "worse than expected", "why": "double-grant: expected to hold and broke"}
VALID = Said(0, "runs/a/cases/01: VALID (9 operations, 3 grants, 0.1 s)\n", "")
VALID_AND_CUT = Said(0, VALID.out + "  it was cut: what came later is not known\n", "")
INVALID = Said(1, "h: INVALID (9 operations)\n  double-grant   invalid  two promises overlap\n", "")
REFUSED = Said(254, "", "lockbench: runs/a is half-written; its bench died: run it again\n")
CRASHED = Said(255, "", "Traceback (most recent call last):\nKeyError: 'cases'\n")
WRITTEN = Said(0, "runs/a/report.html\n", "")
SERVER = frozenset({Left("container", "c1", "lockbench-a-redis-1")})

# A worker was killed, and the run said so.
HONEST = Aftermath(
    target="worker",
    topology="redis",
    struck=True,
    went_on=True,
    said=Said(255, json.dumps({"ending": "bench"}), "1 case failed\n"),
    ending="bench",
    documents=[FAILED],
    report=WRITTEN,
    checked=VALID,
    left=frozenset(),
)
# Its bench was, and could say nothing.
DEAD = replace(
    HONEST,
    target="bench",
    said=Said(-9, "", ""),
    ending="running",
    documents=[],
    report=REFUSED,
    checked=VALID_AND_CUT,
    left=SERVER,
)
ALL_GREEN = replace(
    HONEST, said=Said(0, '{"ending": "ok"}', ""), ending="ok", documents=[GREEN], went_on=False
)
NOT_STARTED = replace(
    HONEST,
    target="engine",
    said=Said(254, '{"error": "no Docker engine answers"}', "lockbench: no Docker engine answers"),
    ending=None,
    documents=[],
    report=None,
    checked=None,
)

INNOCENT = {
    "a killed worker, told as failed": HONEST,
    "a killed bench": DEAD,
    "killed after the load": ALL_GREEN,
    "a signal that did not end it": replace(ALL_GREEN, went_on=True, struck=False),
    "an engine that nobody missed": replace(ALL_GREEN, went_on=True, target="engine"),
    "an engine that was gone before": NOT_STARTED,
    "what an engine kept is named": replace(
        HONEST,
        target="engine",
        left=SERVER,
        said=replace(HONEST.said, err="lockbench-a-redis-1 could not be removed\n"),
    ),
    "a bench interrupted after its case": replace(
        HONEST, target="bench", documents=[GREEN], checked=VALID
    ),
    "a history that is refused": replace(HONEST, checked=REFUSED),
    "others took over for the server": replace(
        HONEST, target="server", topology="sentinel", checked=INVALID
    ),
}


@pytest.mark.parametrize("seen", INNOCENT.values(), ids=INNOCENT)
def test_nothing_is_wrong_with_true_words(seen: Aftermath) -> None:
    assert wrong_words(seen) == []


PLANTED = {
    "green, though clients went on": replace(ALL_GREEN, went_on=True),
    "green, though clients went on after": replace(HONEST, documents=[GREEN]),
    "green, though it left 1 of": replace(ALL_GREEN, left=SERVER),
    "green without a run": replace(NOT_STARTED, said=ALL_GREEN.said),
    "told as a broken promise: double-grant": replace(HONEST, documents=[WORSE]),
    "told as a broken promise: exit 1": replace(
        HONEST, said=Said(1, "{}", ""), ending="safety"
    ),
    "what it left is not named": replace(HONEST, target="engine", left=SERVER),
    "the run ended in a traceback: KeyError": replace(
        HONEST, said=replace(CRASHED, out="{}")
    ),
    "the run did not end": replace(DEAD, said=Said(None, "", "")),
    "is not one JSON object": replace(HONEST, said=Said(255, "interrupted", "")),
    "exit 255 and yet `ending` says 'running'": replace(HONEST, ending="running", report=REFUSED),
    "a run without a case": replace(ALL_GREEN, documents=[], checked=None),
    "`report` takes a run that never ended": replace(DEAD, report=WRITTEN),
    "`report` ends in a traceback": replace(HONEST, report=CRASHED),
    "`report` hangs": replace(HONEST, report=Said(None, "", "")),
    "`check` hangs": replace(HONEST, checked=Said(None, "", "")),
    "`check` ends in a traceback": replace(HONEST, checked=CRASHED),
    "`check` says VALID of a history that was cut": replace(DEAD, checked=VALID),
    "`check` says INVALID: double-grant": replace(HONEST, checked=INVALID),
    "neither read nor refused": replace(HONEST, checked=Said(120, "", "")),
}  # fmt: skip


@pytest.mark.parametrize(("words", "seen"), PLANTED.items(), ids=PLANTED)
def test_every_wrong_word_is_seen(words: str, seen: Aftermath) -> None:
    said = wrong_words(seen)
    assert len(said) == 1, said
    assert words in said[0]


def test_a_refusal_is_one_sentence_of_ours() -> None:
    assert readable(REFUSED)
    assert readable(Said(254, "", "lockbench: a long sentence\nthat is wrapped\n"))
    assert not readable(Said(254, "", CRASHED.err))


def test_clients_that_went_on_are_seen(tmp_path: Path) -> None:
    folder = tmp_path / "cases" / "01-a-none" / "history"
    folder.mkdir(parents=True)
    write_meta(folder, {"k0": Object(role="contended")}, wall_minus_monotonic_ns=5)
    recorder = Recorder(folder, 1)
    recorder.complete(recorder.invoke(1, F.ACQUIRE, "k0", invoke_ns=100), Type.FAIL)
    recorder.close()
    assert went_on_after(tmp_path, 99)
    assert not went_on_after(tmp_path, 100)
    (folder / "1.0.ops").write_bytes(b"no recording")
    assert not went_on_after(tmp_path, 0)

"""The watch over the load generator: voids numbers, names why, leaves fault seconds out."""

from __future__ import annotations

import json
from pathlib import Path

from lockbench.bench.generator import generator_health
from lockbench.history.op import Fault
from lockbench.results.documents import Generator

S = 10**9


def line(
    second: int, *, cpu: float = 20.0, lag: float = 1.0, machine: float = 50.0, **cycles: int
) -> str:
    return json.dumps(
        {
            "begin_ns": second * S,
            "end_ns": (second + 1) * S,
            "cpu_percent": cpu,
            "machine_percent": machine,
            "lag_ms": [lag] * 50,
            "cycles": cycles or {"contended-1": 5},
        }
    )


def health(folder: Path, *lines: str, faults: tuple[Fault, ...] = (), expected: int = 1) -> object:
    (folder / "worker-1.jsonl").write_text("\n".join(lines) + "\n{half a li")
    return generator_health(folder, faults, (0, 10 * S), expected).why


def test_a_generator_with_room_is_healthy(tmp_path: Path) -> None:
    assert health(tmp_path, line(1), line(2)) == ()


def test_a_busy_or_lagging_worker_voids_the_numbers(tmp_path: Path) -> None:
    assert health(tmp_path, line(1, cpu=95), line(2, cpu=90)) == ("worker-1 used 92 % of a core",)
    assert health(tmp_path, line(1, lag=80)) == ("worker-1's event loop lagged 80 ms (p99)",)


def test_a_busy_sidecar_voids_the_numbers(tmp_path: Path) -> None:
    busy = json.dumps(json.loads(line(1)) | {"sidecar_percent": 97.0})
    assert health(tmp_path, busy) == ("the sidecar of worker-1 used 97 % of a core",)


def test_how_busy_the_machine_was_is_told(tmp_path: Path) -> None:
    (tmp_path / "worker-1.jsonl").write_text(line(1, machine=90) + "\n" + line(2, machine=80))
    assert generator_health(tmp_path, (), (0, 10 * S), 1).machine_percent == 85.0


def test_seconds_of_a_fault_do_not_count(tmp_path: Path) -> None:
    fault = Fault("client-pause", (), (3 * S, 3 * S), (4 * S, 4 * S))
    assert health(tmp_path, line(1), line(3, lag=900), faults=(fault,)) == ()
    assert health(tmp_path, line(1), line(3, lag=900)) != []


def test_a_sidecar_that_died_is_named_whenever_it_did(tmp_path: Path) -> None:
    died = json.loads(line(2)) | {"failures": ["the sidecar of x ended"]}
    fault = Fault("client-pause", (), (2 * S, 2 * S), (4 * S, 4 * S))
    expected = ("worker-1: the sidecar of x ended",)
    assert health(tmp_path, line(1), json.dumps(died), faults=(fault,)) == expected


def test_missing_workers_and_idle_users_are_named(tmp_path: Path) -> None:
    assert health(tmp_path, line(1), expected=3) == ("2 of 3 workers are missing",)
    idle = line(1, **{"contended-1": 0, "rival-1": 0})
    assert health(tmp_path, idle) == ("1 users of worker-1 got nothing done: contended-1",)


def served(folder: Path, *, due: int, begun: int) -> Generator:
    open_load = json.loads(line(1)) | {"due": due, "begun": begun}
    (folder / "worker-1.jsonl").write_text(json.dumps(open_load) + "\n")
    return generator_health(folder, (), (0, 10 * S), 1)


def test_jobs_that_were_never_begun_are_no_load_as_asked(tmp_path: Path) -> None:
    assert served(tmp_path, due=1000, begun=960).short == ()
    (said,) = map(str, served(tmp_path, due=50_000, begun=9_000).short)
    assert said.startswith("9,000 of 50,000 jobs")


def idling(folder: Path, idle: int, *, patient: bool = False) -> object:
    """Of ten clients, and two that take turns at the aimed key."""
    cycles = {f"contended-{n}": int(n >= idle) for n in range(10)} | {"rival-1": 0, "victim-0": 0}
    (folder / "worker-1.jsonl").write_text(line(1, **cycles) + "\n")
    return generator_health(folder, (), (0, 10 * S), 1, patient=patient).short


def test_clients_that_got_nothing_done_are_no_load_as_asked(tmp_path: Path) -> None:
    assert idling(tmp_path, 0) == idling(tmp_path, 1) == ()
    assert idling(tmp_path, 4) == ("4 of 10 clients got nothing done",)
    assert idling(tmp_path, 4, patient=True) == ()

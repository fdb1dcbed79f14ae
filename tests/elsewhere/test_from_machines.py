"""Load from another machine on a cluster of somebody else: its clients go through the links and the
relay here, and the password stays here."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lockbench.history.columns import History
from lockbench.history.op import F, Fault, Type
from lockbench.history.recording import read_recording
from lockbench.results.on_machines import Placed, on_machines
from tests.elsewhere import servers
from tests.elsewhere.servers import PASSWORD
from tests.elsewhere.test_real import ran_without_a_secret
from tests.eventually import eventually
from tests.workloads.namespaces import machines_file, why_not, written
from tests.workloads.test_machines import agents, rows_on

AHEAD_S = 100_000
WORKERS = 2

pytestmark = [
    pytest.mark.docker,
    pytest.mark.slow,
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
]


def test_clients_of_another_machine_are_let_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines_file(tmp_path, a=(AHEAD_S, WORKERS))
    noted = f'env >> {tmp_path}/environment; exec "$@"'
    command = shlex.join(["sh", "-c", noted, "sh", f"{tmp_path}/on", str(AHEAD_S)])
    machines = written(tmp_path, {"a": (command, WORKERS)})
    faults = ["partition-drop", "client-pause:who=half"]
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    with servers.redis(tmp_path) as foreign:
        file = foreign.file(**{"[hands]": foreign.hands("pause")})
        words = ["--lock", "redis-token", "--fault", ",".join(faults)]
        words += ["--cluster", str(file), "--machines", str(machines)]
        judged = ran_without_a_secret(foreign, words, [])
    assert len(judged) == len(faults)
    eventually(lambda: not agents())
    environment = (tmp_path / "environment").read_text()
    assert "PATH=" in environment
    assert PASSWORD not in environment
    run = next(path for path in (home / "runs").iterdir() if not path.is_symlink())
    histories = sorted(run.glob("cases/*/history"))
    assert len(histories) == len(faults)
    for folder in histories:
        history = read_recording(folder)
        assert (history.machines, history.missing) == (("a",), ())
        granted = (history.f == F.ACQUIRE) & (history.type == Type.OK)
        there = rows_on(history, "a")
        assert np.any(granted & there), folder
        assert np.any(granted & ~there), folder
        assert [one.came_back for one in on_machines(history)] == [True, True]
        for fault in history.faults:
            if fault.name != "client-pause" and fault.facts["proven"]:
                assert not np.any(granted_while(history, fault)), fault


def granted_while(history: History, fault: Fault) -> NDArray[np.bool_]:
    """Grants of the other machine that were asked for and given while a fault was on, by the clock
    here."""
    placed = Placed.of(history)
    here, (_, begun_ns) = placed.history, fault.begin_ns
    assert fault.heal_ns is not None
    found: NDArray[np.bool_] = (
        (placed.machine == history.machines.index("a"))
        & (here.f == F.ACQUIRE)
        & (here.type == Type.OK)
        & (here.invoke_ns > begun_ns)
        & (here.complete_ns < fault.heal_ns[0])
    )
    return found

"""Servers of somebody else, with TLS, users and passwords: let in, broken, left as they were."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest

from lockbench.bench import plan
from lockbench.clusters.base import (
    HARNESS,
    ClusterError,
    Cuttable,
    Edge,
    Killable,
    Pausable,
)
from lockbench.clusters.elsewhere import claim, topology
from lockbench.clusters.elsewhere.site import JOINED, SiteError, Verb
from lockbench.clusters.engine import owner
from lockbench.clusters.engine.docker import Engine
from lockbench.clusters.engine.reaper import reap
from lockbench.clusters.redis.protocol import ask
from lockbench.clusters.wire import Line
from lockbench.locks.registry import systems
from lockbench.locks.shared.library import library_of
from lockbench.results import cases
from lockbench.results.errors import Unfit
from tests import command
from tests.elsewhere import servers
from tests.elsewhere.servers import PASSWORD, PREFIX, VARIABLE, Foreign
from tests.elsewhere.there import LONG_S, case, lock_on, look, made, taken_and_released
from tests.eventually import eventually, one_of

pytestmark = [pytest.mark.docker, pytest.mark.slow]
PROBE_S = 0.5


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Foreign]:
    with servers.redis(tmp_path_factory.mktemp("redis")) as foreign:
        yield foreign


# --- what is refused ---


def test_a_cluster_that_is_not_what_its_file_says_is_refused(
    redis: Foreign, tmp_path: Path
) -> None:
    at = f"{redis.nodes[0][0]}:{redis.nodes[0][1]}"
    (tmp_path / "wrong.txt").write_text("planted-wrong")
    for changed, said in (
        ({"password-env": None, "user": None}, "asks for a password: name where it is in"),
        ({"password-env": None, "password-file": f'"{tmp_path}/wrong.txt"'}, "does not take the"),
        ({"[tls]": None}, "speaks TLS: give"),
        ({"[tls]": 'ca = "ca.pem"'}, "does not agree on TLS"),
        ({"[tls]": 'certificate = "client.pem"\nkey = "client.key"'}, "is not trusted"),
        ({"topology": '"etcd"', "prefix": None}, "127.0.0.1"),
    ):
        file = redis.file(f"refused-{abs(hash(said))}.toml", **changed)
        with pytest.raises((ClusterError, SiteError)) as caught:
            look(file)
        assert said in str(caught.value)
        assert at in str(caught.value) or "cluster" in str(caught.value)
        assert PASSWORD not in str(caught.value)


def test_reports_know_what_ran_elsewhere_by_its_name() -> None:
    assert cases.ELSEWHERE == topology.ELSEWHERE


def test_a_file_that_names_a_server_twice_is_refused(redis: Foreign) -> None:
    (_, port) = redis.nodes[0]
    nodes = f'["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}"]'
    file = redis.file("twice.toml", topology='"redlock"', nodes=nodes)
    with pytest.raises(ClusterError, match="are one and the same server"):
        look(file)


def test_what_is_under_the_prefix_is_nobodys_to_remove(redis: Foreign, tmp_path: Path) -> None:
    file = redis.file("used.toml")
    with made(file, tmp_path) as there, Line(there.address(HARNESS, 1), LONG_S) as line:
        ask(line, "SET", f"{PREFIX}theirs", "1")
        there.empty()
        assert ask(line, "GET", f"{PREFIX}theirs") is None
    at = redis.nodes[0]
    admin = servers.as_admin(redis.folder, at)
    admin.set(f"{PREFIX}theirs", "1")
    with pytest.raises(ClusterError, match=f"already has a key under '{PREFIX}'"):
        made(file, tmp_path / "second").start()
    assert admin.delete(f"{PREFIX}theirs") == 1


def test_of_two_benches_with_one_prefix_one_is_refused(redis: Foreign, tmp_path: Path) -> None:
    """And what it says of the other one is so; a claim that nobody is left for is removed."""
    file = redis.file("claimed.toml")
    with made(file, tmp_path):
        with pytest.raises(ClusterError, match=f"process {os.getpid()} on .*: wait for its end"):
            made(file, tmp_path / "second").start()
        os.environ[VARIABLE] = PASSWORD
        busy = command.lockbench("clean", "--cluster", str(file), "--yes")
        assert busy.returncode != 0
        assert "is still at work: end it first" in busy.stderr
    admin = servers.as_admin(redis.folder, redis.nodes[0])
    assert not admin.keys()
    pid, _, rest = claim.new().partition(":")
    admin.set(f"{PREFIX}{claim.NAME}", f"{pid}:1:{rest.partition(':')[2]}")
    with pytest.raises(ClusterError, match="which has ended: `lockbench clean --cluster"):
        look(file)
    os.environ[VARIABLE] = PASSWORD
    done = command.lockbench("clean", "--cluster", str(file), "--yes")
    assert f"(0), and the claim of the bench with process {pid}" in done.stderr
    assert not admin.keys()


def test_faults_that_nobody_can_give_there_do_not_apply(redis: Foreign) -> None:
    bare = case(redis.file("bare.toml"))
    hands = case(redis.file("both.toml", **{"[hands]": redis.hands("kill")}))
    for one, fault, applies in (
        (bare, "partition-drop", True),
        (bare, "client-pause", True),
        (bare, "kill", False),
        (hands, "kill", True),
        (hands, "pause", False),
        (hands, "wipe", False),
        (hands, "clock-jump", False),
    ):
        assert plan.applies(replace(one, fault=fault)) == applies, fault
    assert "bare.toml gives no commands" in str(plan.unfit(replace(bare, fault="kill")))
    with pytest.raises(Unfit, match="lock:KEY and lock-signal:KEY, which are not under the prefix"):
        case(redis.file("library.toml"), "python-redis-lock")


# --- what is done and undone ---


def test_it_is_cut_frozen_and_killed_and_left_as_it_was(redis: Foreign, tmp_path: Path) -> None:
    file = redis.file("hands.toml", **{"[hands]": redis.hands("pause", "kill")})
    with made(file, tmp_path) as there:
        serves = partial(there.serves, 1, PROBE_S)
        assert isinstance(there, Cuttable)
        there.cut([Edge(-1, 1)], "drop")
        assert there.broken_links()
        assert not serves(1)
        eventually(lambda: serves(HARNESS))
        there.heal()
        eventually(lambda: serves(1))
        assert isinstance(there, Pausable)
        there.pause([1])
        assert there.frozen(1)
        assert not serves(HARNESS)
        there.unpause([1])
        eventually(lambda: serves(1))
        assert isinstance(there, Killable)
        there.kill([1])
        assert not serves(HARNESS)
        there.restart([1])
        eventually(lambda: serves(1))
        assert there.link_overhead_us(3).keys() == {"linked", "direct"}
        there.pause([1])  # the end has to undo it
    assert look(file).startswith("Redis 8.")


def test_locks_that_may_be_run_there_stay_under_the_prefix(redis: Foreign, tmp_path: Path) -> None:
    """The servers' user may touch nothing else."""
    names = [
        name
        for name, one in systems().items()
        if one.elsewhere and "redis" in one.topologies and library_of(one) is None
    ]
    assert "redis-fair" in names
    with made(redis.file("locks.toml"), tmp_path) as there:
        for name in names:
            with closing(lock_on(there, name)) as lock:
                taken_and_released(lock)


def test_what_a_killed_bench_left_is_removed(redis: Foreign, tmp_path: Path) -> None:
    """By the keeper: a frozen server serves, the prefix is empty, near links are gone."""
    file = redis.file("killed.toml", **{"[hands]": redis.hands("pause")})
    program = (
        "import sys, time; from pathlib import Path\n"
        "sys.path.insert(0, '.')\n"
        "from tests.elsewhere.there import built, lock_on\n"
        "there = built(Path(sys.argv[1]), Path(sys.argv[2])); there.start()\n"
        "lock_on(there, 'redis-token').acquire('k0', hold_id=1, ttl_s=600, wait_s=0)\n"
        "there.pause([1]); print('frozen', flush=True); time.sleep(60)"
    )
    os.environ[VARIABLE] = PASSWORD
    with subprocess.Popen(
        [sys.executable, "-c", program, file, tmp_path], stdout=subprocess.PIPE, text=True
    ) as bench:
        assert bench.stdout is not None
        assert bench.stdout.readline() == "frozen\n"
        with Engine() as engine:
            theirs = {owner.RUN: f"test-{bench.pid}"}
            assert engine.containers(theirs)
        bench.send_signal(signal.SIGKILL)

    def clean() -> bool:
        with suppress(ClusterError):
            return bool(look(file))
        return False

    eventually(clean)
    with Engine() as engine:
        eventually(lambda: not engine.containers(theirs), "near links are left")


def test_clean_removes_what_is_left_when_bench_and_keeper_are_killed(
    redis: Foreign, tmp_path: Path
) -> None:
    file = redis.file("both-killed.toml", **{"[hands]": redis.hands("pause")})
    there = made(file, tmp_path)
    there.start()
    with closing(lock_on(there, "redis-token")) as lock:
        lock.acquire("k0", hold_id=1, ttl_s=600, wait_s=0)
    assert isinstance(there, Pausable)
    there.pause([1])
    ((_, pid),) = there.attendants()
    psutil.Process(pid).kill()
    os.environ[VARIABLE] = PASSWORD
    log = redis.folder / "hands.log"
    log.write_text("")
    asked = command.lockbench("clean", "--cluster", str(file))
    assert asked.returncode == 254, asked.stderr
    assert "the commands for resume of both-killed.toml are run for every node" in asked.stderr
    assert not log.read_text()
    os.environ[VARIABLE] = PASSWORD
    done = command.lockbench("clean", "--cluster", str(file), "--yes")
    assert done.returncode == 0, done.stderr
    assert f"what is under '{PREFIX}' (1), and the claim of" in done.stderr
    assert "nothing is left there" in done.stderr
    assert "resume" in log.read_text()
    assert look(file)
    assert there.stop() == []


# --- a run ---


def test_a_run_says_what_it_will_do_and_its_folder_has_no_secret(
    redis: Foreign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = redis.file("run.toml")
    words = [
        "--lock",
        "redis-token",
        "--cluster",
        str(file),
        "--fault",
        "partition-drop:for=1",
    ]
    os.environ[VARIABLE] = PASSWORD
    asked = command.lockbench("run", *words)
    assert asked.returncode == 254
    assert "13 clients" in asked.stderr
    assert "--yes says it may" in asked.stderr
    assert not Path("runs").exists()
    said = [asked.stdout, asked.stderr]

    def play(number: int) -> list[str]:
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        return ran_without_a_secret(redis, words, said)

    wanted = ["as expected"]
    assert one_of(play, wanted.__eq__, 3) == wanted
    assert look(file)


def ran_without_a_secret(foreign: Foreign, words: list[str], said: list[str]) -> list[str]:
    """A run there, in which every fault proves itself, is not exposed or meets a disturbance, and
    what is said of it. Its judgements."""
    os.environ[VARIABLE] = PASSWORD
    done = command.lockbench("run", *words, "--yes", "--brief", "--json")
    cases = json.loads(done.stdout)["cases"]
    run = next(path for path in Path("runs").iterdir() if not path.is_symlink())
    report = command.lockbench("bugreport", str(run))
    key = (foreign.folder / "client.key").read_text().splitlines()[1]
    said += [done.stdout, done.stderr, report.stdout, report.stderr]
    files = [path for path in Path("runs").rglob("*") if path.is_file()]
    for secret in (PASSWORD, key):
        assert not any(secret in text for text in said)
        found = [path for path in files if secret.encode() in path.read_bytes()]
        assert not found
    # The search itself finds, and the servers' version is in the record.
    assert any(foreign.topology.encode() in path.read_bytes() for path in files)
    assert look(foreign.file("seen.toml")) in (run / "versions.json").read_text()
    judged = [one["judgement"] for one in cases]
    # What a server needs to come back may be longer than every promise.
    assert {"as expected", "not exposed", "disturbed"}.issuperset(judged), (cases, done.stderr)
    return judged


@pytest.mark.long
@pytest.mark.parametrize(
    ("start", "lock", "faults"),
    [
        (servers.etcd, "etcd", "kill"),
        (partial(servers.etcd, size=3), "etcd", "partition-drop,partition-drop:shape=minority"),
        (servers.postgres, "postgres-for-update", "pause"),
        (servers.zookeeper, "zookeeper", "kill,reply-lost"),
        (
            partial(servers.zookeeper, size=3),
            "zookeeper",
            "partition-drop,partition-drop:shape=majority",
        ),
        (
            partial(servers.sentinel, down_after_ms=1000),
            "redis-sentinel",
            "kill,reply-lost,partition-drop",
        ),
        (servers.redis_cluster, "redis-cluster", "pause,partition-drop:shape=clients"),
        (partial(servers.redis_cluster, replicas=True), "redis-cluster", "partition-drop"),
    ],
)
def test_faults_by_hand_prove_themselves(
    start: Callable[[Path], AbstractContextManager[Foreign]],
    lock: str,
    faults: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with start(tmp_path) as foreign:
        verbs: list[Verb] = ["pause", "kill"]
        if foreign.topology in JOINED:
            verbs.append("cut")
        file = foreign.file(**{"[hands]": foreign.hands(*verbs)})
        words = ["--lock", lock, "--cluster", str(file), "--fault", faults]
        judged = ran_without_a_secret(foreign, words, [])
        assert len(judged) == len(faults.split(","))


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_there_however_a_run_ends(
    redis: Foreign, tmp_path: Path, how: signal.Signals
) -> None:
    file = redis.file(f"ended-{how.name}.toml", **{"[hands]": redis.hands("pause")})
    log = redis.folder / "hands.log"
    log.write_text("")
    words = ["run", "--lock", "redis-token", "--fault", "pause", "--cluster", str(file), "--yes"]
    with subprocess.Popen(
        [sys.executable, "-m", "lockbench.cli.main", *words],
        cwd=tmp_path,
        env={**os.environ, VARIABLE: PASSWORD},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        eventually(lambda: "pause" in log.read_text())
        run.send_signal(how)
        _, said = run.communicate(timeout=LONG_S)
    if how != signal.SIGKILL:
        assert run.returncode == 255
        assert "everything that was started is gone" in said
    eventually(lambda: "resume" in log.read_text())

    def clean() -> bool:
        with suppress(ClusterError):
            return bool(look(file))
        return False

    eventually(clean)
    reap(lambda _: None)


@pytest.mark.long
def test_redlock_is_struck_on_servers_of_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with servers.redis(tmp_path, 5) as foreign:
        file = foreign.file(**{"[hands]": foreign.hands("pause")})
        os.environ[VARIABLE] = PASSWORD
        words = ["suite", "cluster", str(file), "--lock", "redlock", "--fault", "pause,reply-lost"]
        done = command.lockbench(*words, "--yes", "--json")
        assert {case["judgement"] for case in json.loads(done.stdout)["cases"]} == {"as expected"}
        assert look(file)


@pytest.mark.parametrize(
    ("start", "locks"),
    [
        (servers.etcd, ("etcd", "etcd-no-recheck")),
        (servers.postgres, ("postgres-for-update", "postgres-advisory")),
    ],
)
def test_etcd_and_postgres_let_the_locks_in_too(
    start: Callable[[Path], AbstractContextManager[Foreign]],
    locks: tuple[str, ...],
    tmp_path: Path,
) -> None:
    with start(tmp_path) as foreign:
        file = foreign.file()
        with made(file, tmp_path / "logs") as there:
            for name in locks:
                with closing(lock_on(there, name)) as lock:
                    taken_and_released(lock)
            with pytest.raises(ClusterError, match="wait for its end, or choose another prefix"):
                made(foreign.file("second.toml"), tmp_path / "second").start()
        assert look(file)
        odd = foreign.file("odd.toml", user='"somebody"')
        with pytest.raises(ClusterError, match="somebody"):
            look(odd)

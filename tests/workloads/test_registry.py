"""Workloads are found by a scan, and what was asked of one is checked before anything starts."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lockbench.bench import plan
from lockbench.checker.catalogue import ALWAYS
from lockbench.checker.follows import FOLLOWS
from lockbench.checker.jobs import VERDICTS_OF
from lockbench.history.op import JOBS
from lockbench.results.errors import BadInput, Unfit
from lockbench.workloads.registry import WorkloadError, declared, find


def test_every_declared_workload_is_whole() -> None:
    for name, workload in declared().items():
        asked = find(name)
        assert workload.name == name
        assert workload.summary
        lock = "redis-token" if "mutex" in workload.kinds else "redis-reentrant"
        plan.refuse_impossible(plan.make_case(lock, "none", seed=0, workload=name))
        job = workload.describes(asked.options).get("job")
        assert job is None or job in JOBS
        reached = set(VERDICTS_OF[str(job)]) if job is not None else set()
        assert set(workload.verdicts) <= reached | set(ALWAYS), name
        assert reached <= set(workload.verdicts), f"{name} does not ask for its own verdict"


def test_a_verdict_of_a_job_follows_from_those_of_its_lock() -> None:
    """Or is never excused: then no lock has to declare anything for a new workload."""
    of_jobs = {verdict for verdicts in VERDICTS_OF.values() for verdict in verdicts}
    assert {verdict for verdict in of_jobs if not FOLLOWS[verdict]} == {"lost-charge"}


def test_parameters_are_chosen_by_name() -> None:
    options = find("payment:idempotency=yes:rate=200").options
    assert options["idempotency"] == "yes"
    assert options["rate"] == 200
    assert options["copies"] == 2


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("paymnt", "no workload is called 'paymnt'"),
        ("payment:colour=red", "has no parameter 'colour'; its parameters: rate"),
        ("payment:idempotency=maybe", "payment:idempotency=maybe: it is one of no, yes"),
        ("payment:copies=0", "it is a number from 1"),
        ("mutex:rate=nan", "it is a number from 0 to 100,000"),
        ("mutex:rate=fast", "it is a number from 0 to 100,000"),
        ("mutex:rate=1e12", "it is a number from 0 to 100,000"),
        ("payment:copies=inf", "it is a number from 1"),
        ("published:rate=3", "its parameters: none"),
        ("payment:copies", "'copies' is not parameter=value"),
        ("payment:copies=2:copies=3", "copies is said twice"),
        ("rate-limit:calls=1001", "it is a number from 1 to 1,000"),
        ("read-write:reads=1.5", "it is a number from 0 to 1"),
    ],
)
def test_what_does_not_exist_is_refused_with_the_remedy(spec: str, said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        find(spec)
    with pytest.raises(BadInput):
        plan.find_workload(spec)


def test_a_workload_says_for_which_locks_it_is() -> None:
    with pytest.raises(Unfit, match="inventory is not a workload for a semaphore lock"):
        plan.make_case("zookeeper-semaphore", "none", seed=0, workload="inventory")


def test_a_hold_longer_than_the_run_is_refused() -> None:
    case = plan.make_case("redis-token", "none", seed=0, workload="long-hold:times=6")
    with pytest.raises(BadInput, match=r"holds the lock for 18 s, longer than the 15 s in which"):
        plan.refuse_impossible(case)


def test_a_workload_without_faults_refuses_them() -> None:
    case = plan.make_case("redis-token", "kill", seed=0, workload="published")
    with pytest.raises(BadInput, match="knows no faults"):
        plan.refuse_impossible(case)


def test_declarations_do_not_bring_locust_into_the_bench() -> None:
    code = (
        "import sys; from lockbench.workloads.registry import declared; declared()\n"
        "sys.exit('locust' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

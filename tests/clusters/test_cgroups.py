"""A container's counters, in both layouts that kernels have; of another's they say nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockbench.clusters.engine import cgroups

ID = "3aba9f"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    (tmp_path / "proc" / "7").mkdir(parents=True)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def read(machine: Path, pid: int, container: str) -> tuple[int | None, int | None]:
    where = {"groups": machine / "cgroup", "of": machine / "proc"}
    return (
        cgroups.cpu_ns(pid, container, **where),
        cgroups.memory_bytes(pid, container, **where),
    )


def test_version_1(machine: Path) -> None:
    write(
        machine / "proc/7/cgroup",
        f"4:memory:/docker/{ID}\n2:cpu,cpuacct:/docker/{ID}\n0::/docker/{ID}\n",
    )
    write(machine / f"cgroup/cpuacct/docker/{ID}/cpuacct.usage", "123456789\n")
    write(machine / f"cgroup/memory/docker/{ID}/memory.usage_in_bytes", "5000\n")
    write(machine / f"cgroup/memory/docker/{ID}/memory.stat", "cache 9\ntotal_inactive_file 1000\n")
    assert read(machine, 7, ID) == (123456789, 4000)


def test_version_2(machine: Path) -> None:
    scope = f"system.slice/docker-{ID}.scope"
    write(machine / "proc/7/cgroup", f"0::/{scope}\n")
    write(machine / f"cgroup/{scope}/cpu.stat", "usage_usec 1500\nuser_usec 900\n")
    write(machine / f"cgroup/{scope}/memory.current", "5000\n")
    write(machine / f"cgroup/{scope}/memory.stat", "anon 1\ninactive_file 500\n")
    assert read(machine, 7, ID) == (1_500_000, 4500)


def test_who_is_in_another_group_or_gone_tells_nothing(machine: Path) -> None:
    write(machine / "proc/7/cgroup", "0::/user.slice\n")
    assert read(machine, 7, ID) == (None, None)
    assert read(machine, 8, ID) == (None, None)
    write(machine / "proc/7/cgroup", f"0::/docker/{ID}\n")
    assert read(machine, 7, ID) == (None, None)  # its files are hidden


@pytest.mark.parametrize("mount", ["cgroup", "cgroup/unified"], ids=["v2", "v2 beside v1"])
def test_pressure_is_the_container_s_own(machine: Path, mount: str) -> None:
    """The first line is of some threads, the second of all."""
    write(machine / "proc/7/cgroup", f"2:cpu,cpuacct:/docker/{ID}\n0::/docker/{ID}\n")
    some = "some avg10=1.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 total=7\n"
    write(machine / f"{mount}/docker/{ID}/cpu.pressure", some)
    where = {"groups": machine / "cgroup", "of": machine / "proc"}
    assert cgroups.pressure_s(7, ID, "cpu", **where) == 2.5
    assert cgroups.pressure_s(7, ID, "io", **where) is None
    assert cgroups.pressure_s(8, ID, "cpu", **where) is None

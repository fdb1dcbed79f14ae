"""``lockbench agent``."""

from __future__ import annotations


def agent() -> None:
    """The other end of --machines: workers on this machine, for a bench on another one."""
    from lockbench.workloads.machines.agent import main

    main()

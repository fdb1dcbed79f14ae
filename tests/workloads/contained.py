"""A lock of a client container that needs no server: its library grants whatever is asked."""

from __future__ import annotations

from lockbench.locks.base import System
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.client_programs import Program

IMAGE = "go-sidecar"

_LIBRARY = ContainerLibrary(IMAGE, "nothing", Program("nothing", "main.go", "nothing", "nobody"))
NOTHING = System(
    name="nothing",
    topologies=("redis",),
    family="redis",
    fence=None,
    waits_by="nothing",
    source="clusters/images/go-sidecar/main.go",
    connect=_LIBRARY.connect,
    prepare=_LIBRARY.prepare,
    outcomes={},
    expectations={},
)

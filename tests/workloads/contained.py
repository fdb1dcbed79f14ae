"""A lock of a client container that needs no server: its library grants whatever is asked."""

from __future__ import annotations

from locks.base import System
from locks.client_container import ContainerLibrary

IMAGE = "go-sidecar"

_LIBRARY = ContainerLibrary(IMAGE, "nothing")
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

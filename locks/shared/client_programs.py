"""How a program in a client image uses a library: what it calls, what it sets. Locks declare it.

This is a description for reports. The programs are in Go, Java, Node and PHP, beside the
declarations, and do not read it. A test holds it to their sources: every setting must be named
there. Whatever is not listed is the library's default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

GO_IMAGE: Final = "go-sidecar"
GO_CLIENTS: Final = "go"  # ``System.client_family`` of one lock for each system
JVM_IMAGE: Final = "jvm-sidecar"
NODE_IMAGE: Final = "node-sidecar"
PHP_IMAGE: Final = "php-sidecar"
THE_LEASE: Final = "the lease"
LIMIT: Final = "the client timeout"
# What a program takes of the memory with a client of its largest library, of a JVM with a heap of
# 64 MiB, and the process that it belongs to.
TAKES_BYTES: Final = {
    GO_IMAGE: 55 << 20,
    JVM_IMAGE: 150 << 20,
    NODE_IMAGE: 95 << 20,
    PHP_IMAGE: 55 << 20,
}


@dataclass(frozen=True)
class Program:
    """One lock of one image. ``library`` is its pin (``lockbench.locks.shared.pins``),
    ``stands_on`` are further ones that decide what it does on the wire; ``source`` is the file that
    calls it. ``call`` is an acquire, ``client`` what a client of the bench is to the library.
    ``settings`` maps what is set to its value, ``safe`` what is set beside it where the lock is
    ``-safe``; ``beside`` is what the program does that the library does not."""

    library: str
    source: str
    call: str
    client: str
    stands_on: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    safe: Mapping[str, str] = field(default_factory=dict)
    beside: str = ""


# What all programs of an image set.
JVM: Final = {
    "-XX:+UseSerialGC": "on",
    "-XX:TieredStopAtLevel": "1",
    "-Xmx": "256m unless LOCKBENCH_HEAP says otherwise",
}
GO: Final = {"runtime.GOMAXPROCS": "1"}

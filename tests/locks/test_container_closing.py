"""A client in a container that is closed leaves no connection to a server behind.

``explore`` relies on it: its links end with each play, and the programs go on.
"""

from __future__ import annotations

from collections.abc import Callable

import psutil
import pytest

from lockbench.locks.base import Granted
from lockbench.locks.registry import find
from tests.eventually import eventually
from tests.locks.asking import Room
from tests.locks.test_pins import contained

pytestmark = pytest.mark.docker

# One of each program, and those whose clients share what others of the same program do not.
OF_EACH = {library.program.source: name for name, library in reversed(contained().items())}
NAMES = sorted({*OF_EACH.values(), "etcd-concurrency-shared-session", "redisson-redlock"})
LONG = {"client-go-lease"}  # Kubernetes is not built for ``make test``


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in NAMES],
)
def test_a_closed_client_leaves_no_connection(name: str, room: Callable[[str], Room]) -> None:
    here, library = room(find(name).topologies[0]), contained()[name]
    library.prepare()
    ports = {node.port for node in here.running.nodes}
    first, second = here.client(name), here.client(name)
    program = psutil.Process(library.started().pid)

    def connected() -> list[object]:
        """The process' clients may be processes of their own."""
        return [
            connection
            for process in (program, *program.children(recursive=True))
            for connection in process.net_connections("tcp")
            if connection.raddr and connection.raddr.port in ports
        ]

    for client in (first, second):
        client.release(here.granted(client).hold)
    assert connected()
    first.close()
    second.release(here.granted(second).hold)
    second.close()
    eventually(lambda: not connected())
    third = here.client(name)
    third.release(here.granted(third).hold)


def test_what_a_closed_client_of_jetcd_held_ends_with_its_lease(
    room: Callable[[str], Room],
) -> None:
    """The connection is shared, and renews what those hold who are still there."""
    here, library = room("etcd"), contained()["jetcd"]
    library.prepare()
    first, second = here.client("jetcd"), here.client("jetcd")
    here.granted(first)
    first.close()
    eventually(lambda: isinstance(here.take(second), Granted))

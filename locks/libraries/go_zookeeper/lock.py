"""The lock of go-zookeeper/zk (https://github.com/go-zookeeper/zk), the client of ZooKeeper for Go,
behind the Go sidecar: ``zk.Connect`` with a session as long as the lease, and
``NewLock(conn, path, acl).LockWithData(…)`` per acquire.

The library sets no limit that its user could change: every request is sent once and has no time-out
of its own, and ``Lock`` waits as long as it takes. So there is no ``-safe``. ``Lock`` runs in a
goroutine here, and what does not return in time is given up: its node is deleted, and ``Unlock``
follows should it be granted later. One try is given up when ``Lock`` looks at the node before its
own, which it does to wait for it. StateDisconnected and StateExpired, which ``Connect`` tells its
user, end what is held.

The promise is the session: the send time of its last message that counts
(``locks/libraries/shared/zookeeper_touches.py``), plus the timeout that the server agreed to. The
create and the list of children that ``Lock`` ends with are such messages (``lock.go``,
``LockWithData``, v1.0.4), and a ping each third of the session, whatever else is sent (``conn.go``,
``setTimeouts`` and ``sendLoop``). The times are seen by a ``net.Conn`` that sends nothing itself. A
hold is lengthened by the session alone whose server listed its node. A silent server is given up
after two thirds of the session (``recvLoop``).

It tells no fence: ``Lock`` returns an error alone, and the path of its node is private. That node's
czxid would be one.

Does not guarantee: what ``zookeeper`` does not. Beside that (v1.0.4):

- ``Lock`` that returns an error may leave its node behind, which blocks everybody for as long as
  the client's session lives; its name is not known to its user
  (https://github.com/samuel/go-zookeeper/issues/229, open). ``Unlock`` without an answer may, too.
- ``Lock`` compares numbers and does not look whether its own node is among the children. A request
  that waits for a connection is sent in whatever session comes next (``conn.go``, ``sendChan``). So
  when a connection breaks after the create was answered, and the session ends, ``Lock`` may be told
  by a later session that it is first, without a node (docs/track/go-zookeeper-no-node.md).
- A server that accepts a connection and says nothing is given up after 6.7 times the session
  (``authenticate``: ten times the receive timeout), when that is long over.
"""

from __future__ import annotations

from lockbench.locks.base import System
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.client_programs import (
    GO,
    GO_CLIENTS,
    GO_IMAGE,
    LIMIT,
    THE_LEASE,
    Program,
)
from lockbench.locks.shared.expectations import (
    ANSWERS_LOST,
    PAUSED,
    RESTARTED,
    UNMOVED,
    may_break,
    with_changes,
)
from lockbench.locks.zookeeper.expectations import ZOOKEEPER

DOC = "https://pkg.go.dev/github.com/go-zookeeper/zk#Lock"
_LOCK = "https://github.com/go-zookeeper/zk/blob/v1.0.4/lock.go"
_LEFT = (
    "https://github.com/samuel/go-zookeeper/issues/229: Lock that returns an error may leave its "
    "node, which blocks everybody while the session lives"
)
_NOT_AMONG_THEM = (
    f"{_LOCK}: LockWithData does not look whether its own node is among the children; a request "
    "that waits for a connection is sent in whatever session comes next (conn.go)"
)
_NOT_LOOKED_AT = f"{_LOCK}: Lock returns when it is first, however long ago that was answered"
_ACTS_ON = f"{DOC}: told that the connection is lost, its holder acts on, and nobody stops it"

# What pauses a client, or breaks its connections.
_CUT_OFF = (*PAUSED, *ANSWERS_LOST, *RESTARTED)
_MAY_BREAK = {
    **may_break(_NOT_AMONG_THEM, "double-grant", "lost-update", kind="defect"),
    **may_break(_LEFT, "leaked-lock", kind="defect"),
    **may_break(_ACTS_ON, "stale-holder"),
    **may_break(_NOT_LOOKED_AT, "late-grant"),
}
_EXPECTATIONS = with_changes(
    ZOOKEEPER,
    dict.fromkeys(_CUT_OFF, _MAY_BREAK),
    {fault: ZOOKEEPER[fault] for fault in PAUSED},
    dict.fromkeys(PAUSED, may_break(_NOT_LOOKED_AT, "late-grant")),
    UNMOVED,
)

_PROGRAM = Program(
    library="github.com/go-zookeeper/zk",
    source="zookeeper.go",
    call="zk.NewLock(conn, path, acl), then LockWithData(hold)",
    client="a goroutine with a zk.Conn, and so a session, of its own",
    settings={
        "zk.Connect": f"session timeout: {THE_LEASE}",
        "zk.WithDialer": "connections that note when answered messages were sent, and send nothing",
        "zk.WithEventCallback": "StateDisconnected and StateExpired end what is held",
        "zk.WithLogger": "one that discards what it is told",
        **GO,
    },
    beside="Lock that has not returned when the wait is over (one try: when it waits for another "
    f"node, or after {LIMIT}) is given up: its node is deleted",
)
_PLAIN = ContainerLibrary(GO_IMAGE, "go-zookeeper", _PROGRAM)

SYSTEM = System(
    name="go-zookeeper",
    topologies=("zookeeper",),
    family="zookeeper",
    fence=None,
    waits_by="watch on the node just before",
    source=DOC,
    connect=_PLAIN.connect,
    prepare=_PLAIN.prepare,
    outcomes={
        "Lock() returned nil": "Granted",
        "one try, Lock() waits for another node, and its own is deleted": "Denied: held",
        "Lock() has not returned in time, and its node is deleted": "Denied: gave-up",
        "Lock() has not returned in time, and its node is not known to be deleted": "Unknown",
        "Lock() returned ErrSessionExpired": "Denied: gave-up",
        "Lock() returned ErrNoServer, and no create was sent": "Denied: no-effect",
        "Lock() returned another error": "Unknown",
        "Unlock() returned nil": "Released",
        "Unlock() returned ErrNoNode": "NotHeld",
        "Unlock() returned another error": "Unknown",
    },
    not_owed={
        "a_server_that_is_not_there_has_no_effect": (
            "a request waits for a connection, and cannot be taken back"
        ),
    },
    expectations=_EXPECTATIONS,
    represents=True,
    client_family=GO_CLIENTS,
)

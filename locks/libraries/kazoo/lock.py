"""kazoo's own ``Lock`` (https://kazoo.readthedocs.io/en/latest/api/recipe/lock.html), from its
package.

``kazoo`` is ``KazooClient(hosts=…)`` and its ``Lock``: a session of 10 s, which is the lease of its
cases, and no listener. When the session has expired, ``is_acquired`` stays True and ``release``
returns True. ``kazoo-safe`` has a shorter session, listens to the client's state, as kazoo highly
recommends, and retries no command. Explorations give both the shorter one.

The promise is the session: the send time of the last acknowledged request or heartbeat that the
leader must have been told of (``locks/libraries/shared/zookeeper_touches.py``), plus what was
negotiated. In kazoo 2.11.0 the create (kazoo/recipe/lock.py, _inner_acquire) is one of these, and a
connection that sends nothing else sends a heartbeat after a third of the session, less up to 0.4 s
(kazoo/protocol/connection.py, _connect_attempt). kazoo tells no fence; the czxid of its node would
be one.

Each acquire first asks whether the path of the lock is there. Where the answers to an acquire are
lost, that is the first; no node has been made yet, and ``reply-lost`` leaves nothing to judge.

Does not guarantee: what ``zookeeper`` does not. Who gives up while the connection breaks may leave
a node that blocks everybody until its session ends (https://github.com/python-zk/kazoo/issues/732).
"""

from __future__ import annotations

from lockbench.locks.base import ANY, System
from lockbench.locks.shared.expectations import (
    ANSWERS_LOST,
    PAUSED,
    RESTARTED,
    may_break,
    with_changes,
    with_verdicts,
)
from lockbench.locks.shared.library import Library, as_safe
from lockbench.locks.zookeeper import mutex as zookeeper
from lockbench.locks.zookeeper.expectations import ZOOKEEPER

DOC = "https://kazoo.readthedocs.io/en/latest/api/recipe/lock.html"

_NO_NODE = (
    "https://github.com/python-zk/kazoo/blob/master/kazoo/recipe/lock.py: is_acquired stays True "
    "when the session has expired, and _inner_release() passes over NoNodeError and returns True"
)
_NOT_LOOKED_AT = (
    "https://github.com/python-zk/kazoo/blob/master/kazoo/recipe/lock.py: acquire() returns True "
    "when nobody was in front, however long ago that was answered"
)
_PATH_FIRST = (
    "https://github.com/python-zk/kazoo/blob/master/kazoo/recipe/lock.py: _inner_acquire() first "
    "asks whether the path is there; while that answer is missing, no node is made"
)
_ORPHAN = (
    "https://github.com/python-zk/kazoo/issues/732: who gives up deletes its node once; where that "
    "request is lost the node stays as long as its session, and nobody is granted the lock"
)
_ERRORS = dict.fromkeys(
    (
        "CancelledError",
        "ConnectionClosedError",
        "ConnectionDropped",
        "ConnectionLoss",
        "NodeExistsError",
        "NoNodeError",
        "NotEmptyError",
        "OperationTimeoutError",
        "SessionExpiredError",
        "SystemZookeeperError",
        "ZookeeperStoppedError",
        # Of these it names the base, KazooException.
        "RequestTimeoutError",
        "RetryFailedError",
        "SessionMovedError",
    ),
    "https://kazoo.readthedocs.io/en/latest/api/exceptions.html",
)
_PLAIN = Library(__file__)

_SYSTEM = System(
    name="kazoo",
    suites={"capacity": (ANY,)},
    topologies=("zookeeper",),
    family="zookeeper",
    fence=None,
    waits_by="watch on the node before",
    source=DOC,
    connect=_PLAIN.connect,
    prepare=_PLAIN.prepare,
    outcomes={
        "acquire() returned True": "Granted",
        "acquire(blocking=False) returned False": "Denied: held",
        "acquire(timeout=…) returned False": "Denied: gave-up",
        "acquire() raised LockTimeout": "Denied: gave-up",
        "acquire() raised anything else": "Unknown",
        "release() returned True": "Released",
        "release() returned False": "NotHeld",
        "release() raised anything": "Unknown",
    },
    raises={"LockTimeout": DOC, **_ERRORS},
    late_release="Released",  # release() returns True for a node that is gone
    not_owed={
        "a_server_that_is_not_there_has_no_effect": (
            "start() wants a connection, so there is no client without one"
        ),
        "paused_servers_make_a_release_unknown": (
            "acquire() tries again for as long as there is no connection"
        ),
    },
    expectations=with_changes(
        with_verdicts(ZOOKEEPER, may_break(_NO_NODE, "false-release", kind="defect")),
        dict.fromkeys(
            (*ANSWERS_LOST, *RESTARTED), may_break(_ORPHAN, "leaked-lock", kind="defect")
        ),
        dict.fromkeys(PAUSED, may_break(_NOT_LOOKED_AT, "late-grant")),
        # A session may end while the servers are frozen, and is_acquired is as before.
        {"pause": may_break(_NO_NODE, "stale-holder", kind="defect")},
        # The false release of such a grant.
        dict.fromkeys(PAUSED, may_break(_NO_NODE, "linearizable", kind="defect")),
    ),
    pace={"lease_ttl_s": 10.0},
    asks_first=_PATH_FIRST,
)

SYSTEMS = (
    _SYSTEM,
    as_safe(_SYSTEM, pace=zookeeper.OUTLIVES_A_RESTART, represents=True),
)

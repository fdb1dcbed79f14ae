"""A control: ``etcd`` as its lock service was until 3.4.3.

A waiter looks for keys before its own, waits for them to go, and then holds the lock, without
looking whether its own key is still there. Its lease may have ended meanwhile, and its key with it:
then it is granted a lock that is somebody else's already. Nobody renews the lease while it waits,
as with the lock service, to which the lease is the client's own affair.

Jepsen found it (https://jepsen.io/blog/2020-01-30-etcd-3.4.3: 'Locks, however, were fundamentally
unsafe … exacerbated by an implementation bug'); https://github.com/etcd-io/etcd/issues/11456 has
the details. It shows wherever the queue is longer than the lease, so the load of this lock holds
for longer than others do. The bench must catch it; if it does not, the bench is broken.

Errors mean what they mean for ``etcd``.
"""

from __future__ import annotations

from lockbench.locks.base import Acquired, Deadline
from lockbench.locks.etcd import mutex as etcd
from lockbench.locks.etcd.expectations import ETCD
from lockbench.locks.etcd.gateway import Ahead, wait_for_deletion
from lockbench.locks.etcd.mutex import Claim, Etcd, ahead_of, by_creation
from lockbench.locks.shared.expectations import (
    UNMINDED,
    breaks,
    may_break,
    with_changes,
    with_verdicts,
)


class EtcdNoRecheck(Etcd):
    """One client of the lock."""

    def _look(self, claim: Claim) -> Ahead | None:
        """Who is before us. Whether we are still there is not asked. This is the defect."""
        if claim.revision is None:
            return self._enter(claim)
        older = {"limit": 1, "max_create_revision": claim.revision - 1}
        answer = self._post("kv/range", {**by_creation(claim.prefix), **older})
        return ahead_of(answer.get("kvs", []), answer)

    def _watch(self, claim: Claim, ahead: Ahead, deadline: Deadline) -> None:
        limit_s = deadline.left_s()
        if limit_s > 0:
            wait_for_deletion(self._nodes[self._at], ahead, self._timeout_s, limit_s)

    def _turn_has_come(self, claim: Claim, hold_id: int) -> Acquired:
        return self._granted(claim, hold_id)


_PUBLISHED = (
    "https://jepsen.io/analyses/etcd-3.4.3 and https://github.com/etcd-io/etcd/issues/11456: a "
    "lock is handed over though the lease that it is bound to has ended"
)

SYSTEM = etcd.SYSTEM.derived(
    name="etcd-no-recheck",
    elsewhere=True,
    connect=EtcdNoRecheck,
    source=_PUBLISHED,
    expectations=with_changes(
        with_verdicts(
            ETCD,
            {
                **breaks(_PUBLISHED, "late-grant", kind="control"),
                **may_break(
                    _PUBLISHED, "double-grant", "stale-holder", "lost-update", kind="control"
                ),
            },
            *UNMINDED,
        ),
        {"client-pause": {"stale-holder": ETCD["client-pause"]["stale-holder"]}},
    ),
    # Four clients share a key: the last of them waits for three holds, longer than its lease. The
    # victim, behind two rivals, still has a fresh lease to be aimed at.
    pace={"hold_s": 1.2, "aimed_hold_s": 0.15},
)

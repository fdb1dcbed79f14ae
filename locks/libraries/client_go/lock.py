"""Kubernetes' leader election for Go, ``k8s.io/client-go/tools/leaderelection``, behind the Go
sidecar: a ``LeaderElector`` over a Lease for each key that a client asks for, and one ``Run`` per
acquire. LeaseDuration is the lease; RenewDeadline and RetryPeriod stand to it as 10 s and 2 s stand
to the 15 s of Kubernetes' own components. ReleaseOnCancel is on, as without it nothing is ever
given back.

A candidate does not look at the times in the record. It takes the lease over when it has seen the
record unchanged for LeaseDuration by its own clock, so one that has just come waits a whole one.
One try is a ``Run`` that is ended once its first look has told who leads. It takes over only what
this client has seen unchanged for long enough.

The promise runs from when the last acknowledged write with this client as the holder began, for
LeaseDuration in whole seconds, which is what the record says. Others see the record later than
that, and wait for as long. Run gives up sooner, one RetryPeriod and one RenewDeadline after its
last renewal, and calls OnStoppedLeading, which is told as a loss.

It tells no fence: OnStartedLeading is given a context. ``leaseTransitions`` of the Lease grows with
every leader, for as long as the object is there, and would be one.

Does not guarantee: that only one client acts as the leader, which its documentation says first.
Beside that (v0.36.3, ``leaderelection.go``, ``resourcelock/leaselock.go``):

- A record is unchanged for a candidate when it is the same in whole seconds: ``Get`` writes its
  times as ``metav1.Time``. Of several renewals in one second it counts from the first that it saw,
  and so takes the lease over up to a second before the promise ends. It takes a RetryPeriod of less
  than a second, which a lease of less than 7.5 s has here.
- ``release`` reads the Lease anew and then decides by the record as it knew it before whether it
  leads. A leader that was held up for longer than its lease, and whose context or RenewDeadline
  then ends before its next look, so gives back the lease of its successor.
- A leader that was held up and finds that its successor has given the lease back takes it again,
  and goes on: OnStoppedLeading is not called. The promise is told as one without a gap, as it is to
  the library's user.
- When renewing has failed, Run first tries to give the lease back, and calls OnStoppedLeading after
  that. With a silent server it is called later than RenewDeadline says, and later than the lease.
- A candidate whose context ends while its write is on its way may leave a lease that it does not
  know of.
- A context that ends while a renewal is on its way may leave the lease as it was: the renewal is
  served after the look of ``release``, whose own write is then refused
  (https://github.com/kubernetes/kubernetes/issues/131867; its mend,
  https://github.com/kubernetes/kubernetes/pull/137988, is not in this version). The first renewal
  goes out at once, and holds of a bench are short, so the adapter waits for its answer.
"""

from __future__ import annotations

from lockbench.locks.base import System
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.client_programs import GO, GO_IMAGE, THE_LEASE, Program
from lockbench.locks.shared.expectations import (
    CUT,
    LOST_UPDATE,
    MAY_BE_LATE,
    SLOW_LINKS,
    UNMOVED,
    Faults,
    breaks,
    holds,
    may_break,
    may_grant_twice,
    with_changes,
)

DOC = "https://pkg.go.dev/k8s.io/client-go/tools/leaderelection"
_CODE = (
    "https://github.com/kubernetes/client-go/blob/v0.36.3/tools/leaderelection/leaderelection.go"
)
_NO_FENCING = (
    f"{DOC}: 'This implementation does not guarantee that only one client is acting as a leader "
    "(a.k.a. fencing)'; https://github.com/kubernetes/kubernetes/issues/67651"
)
_VERSIONS = (
    "https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions: an update "
    "that names another version than the present one is refused; "
    f"{DOC}: a candidate waits for a whole LeaseDuration without observing a change of the record"
)
_RELEASE = (
    f"{_CODE}, release: it reads the Lease anew, and asks IsLeader() of the record as it was "
    "observed before, so it gives back what another has taken meanwhile"
)
_SECONDS = (
    f"{DOC}: 'A client needs to wait a full LeaseDuration without observing a change to the "
    "record'; resourcelock/leaselock.go, Get: the one that is compared has times in whole seconds"
)
_AGAIN = (
    f"{_CODE}, tryAcquireOrRenew: a renewal that finds the lease given back by another takes it, "
    "and renew goes on as if nothing had been"
)
_TOLD_LATE = (
    f"{_CODE}, renew and Run: OnStoppedLeading is called after release, which waits for the "
    "server; https://github.com/cilium/cilium/pull/42920"
)
_LATE = f"{_CODE}, Run: OnStartedLeading is called when the write is acknowledged, however late"
_LOOKS_FIRST = (
    f"{_CODE}, tryAcquireOrRenew: whoever does not lead reads the Lease first; while that answer "
    "is missing, nothing is written"
)
_FILES = (
    "https://kubernetes.io/docs/concepts/overview/components/#etcd: etcd is the store of all of "
    "the cluster's data; without its files there is no Lease, and whoever writes first makes one, "
    "which the renewal of its leader may be"
)
_SERVERS = ("pause", "kill", "restart", "rolling-restart", "reset", "reply-lost")
# A lease may have ended before its holder gives it back.
_OUTLIVED = {
    **may_break(f"{_RELEASE}; {_AGAIN}; {_SECONDS}", "double-grant", kind="defect"),
    **may_break(_RELEASE, "wrong-release", "false-release", kind="defect"),
    **may_break(f"{_NO_FENCING}; {_TOLD_LATE}", "stale-holder"),
    **may_break(_LATE, "late-grant"),
    **LOST_UPDATE,
}
_HELD_UP = [fault for fault in MAY_BE_LATE if fault not in {"wipe", "failover", "power-loss"}]
_EXPECTATIONS: Faults = with_changes(
    dict.fromkeys(("client-kill", *_SERVERS, *CUT, *SLOW_LINKS), holds(_VERSIONS)),
    dict.fromkeys(_HELD_UP, _OUTLIVED),
    {
        "client-pause": breaks(_NO_FENCING, "stale-holder"),
        "wipe": {**_OUTLIVED, **may_grant_twice(_FILES)},
    },
    UNMOVED,
)

_PROGRAM = Program(
    library="k8s.io/client-go",
    source="lease.go",
    call="LeaderElector.Run(ctx) until OnStartedLeading; the end of ctx gives the lease back",
    client="a goroutine with connections of its own, and a LeaderElector for each key",
    stands_on=("k8s.io/apimachinery",),
    settings={
        "LeaseDuration": f"{THE_LEASE}; in the record in whole seconds",
        "RenewDeadline": f"10/15 of {THE_LEASE}",
        "RetryPeriod": f"2/15 of {THE_LEASE}",
        "ReleaseOnCancel": "true",
        "Timeout": "half of RenewDeadline, at least 1 s, as resourcelock.NewFromKubeconfig has it",
        "QPS": "-1: no limit, as controller-runtime has it",
        "Dial": "a dialer of its own, so that clients share no connection",
        "klog.SetLoggerWithOptions": "a logger without a sink",
        **GO,
    },
    beside="a resource lock around LeaseLock notes when records are written, and what came of it; "
    "ctx ends when no renewal is on its way",
)
_PLAIN = ContainerLibrary(GO_IMAGE, "client-go-lease", _PROGRAM)

SYSTEM = System(
    name="client-go-lease",
    topologies=("kubernetes",),
    family="kubernetes",
    fence=None,
    waits_by="polling each 2/15 of the lease, and up to 1.2 times more",
    source=DOC,
    connect=_PLAIN.connect,
    prepare=_PLAIN.prepare,
    outcomes={
        "OnStartedLeading is called": "Granted",
        "one try, Get tells of another holder, and nothing is written": "Denied: held",
        "one try, Get or a dial fails": "Denied: no-effect",
        "the wait is over, and no write is without an answer": "Denied: gave-up",
        "given up while it led, and its write gave the lease back": "Denied: gave-up",
        "given up, and a write is without an answer": "Unknown",
        "Run returned, and its write gave the lease back": "Released",
        "Run had lost the lease, and its write had given it back": "NotHeld",
        "Run returned, and that write is refused for its version": "Unknown",
        "Run returned, and it knew that it led no more, or there is no Lease": "NotHeld",
        "Run returned, and its last read or write failed": "Unknown",
    },
    asks_first=_LOOKS_FIRST,
    kept_leases=2.0,  # a candidate that has just come waits for a whole one
    pace={"lease_ttl_s": 8.0},  # a server that was killed needs seconds; RetryPeriod is over one
    explored_lease_s=8.0,
    expectations=_EXPECTATIONS,
)

"""How the programs in the client images use their libraries: what they call, what they set.

The programs are in Go and Java (``clusters/images/<image>``), so nothing here is what they obey.
Tests hold it to their sources: every setting must be named there. Whatever is not listed is the
library's default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

LEASE: Final = "the lease"
LIMIT: Final = "the client timeout"


@dataclass(frozen=True)
class Program:
    """One lock of one image. ``library`` is its pin (``locks.pins``), ``stands_on`` are further
    ones that decide what it does on the wire; ``source`` is the file that calls it. ``call`` is an
    acquire, ``client`` what a client of the bench is to the library. ``settings`` maps what is set
    to its value, ``safe`` what is set beside it where the lock is ``-safe``; ``beside`` is what the
    program does that the library does not."""

    library: str
    source: str
    call: str
    client: str
    stands_on: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    safe: Mapping[str, str] = field(default_factory=dict)
    beside: str = ""


_JVM = {
    "-XX:+UseSerialGC": "on",
    "-XX:TieredStopAtLevel": "1",
    "-Xmx": "256m unless LOCKBENCH_HEAP says otherwise",
}
_GO = {"runtime.GOMAXPROCS": "1"}

_WATCHED = Program(
    library="org.redisson:redisson",
    source="RedissonLocks.java",
    call="getLock(key).tryLock(wait, -1, MILLISECONDS)",
    client="a thread; the clients of one process share a RedissonClient per server",
    stands_on=("netty-common", "netty-transport", "netty-handler", "netty-transport-native-epoll"),
    settings={
        "Config.setLockWatchdogTimeout": LEASE,
        "Config.setNettyHook": "a handler that notes when a script is written, and sends nothing",
        **_JVM,
    },
    safe={"setTimeout": LIMIT, "setConnectTimeout": LIMIT, "setRetryAttempts": "0"},
)


def _redisson(call: str, **more: str) -> Program:
    return replace(_WATCHED, call=call, settings={**_WATCHED.settings, **more})


def _leased(make: str, ask: str = "tryLock") -> Program:
    return _redisson(f"{make}.{ask}(wait, lease, MILLISECONDS)")


_NAT = "setNatMapper"
_MAPPED = "what servers call themselves → the same port at the proxy of the client"
_CURATOR = Program(
    library="org.apache.curator:curator-recipes",
    source="CuratorLocks.java",
    call="new InterProcessMutex(curator, path).acquire(wait, MILLISECONDS)",
    client="a thread with a CuratorFramework, and so a session, of its own",
    stands_on=("curator-framework", "curator-client", "zookeeper"),
    settings={
        "CuratorFrameworkFactory.newClient": f"session timeout: {LEASE}; connection timeout: "
        f"{LIMIT}; retries: ExponentialBackoffRetry(1000, 3)",
        "ListeningSocket.telling": "a configuration whose connections note when answered messages "
        "were sent, and send nothing",
        "getConnectionStateListenable": "a listener that ends what is held at SUSPENDED and LOST",
        **_JVM,
    },
)
_DEAF = {k: v for k, v in _CURATOR.settings.items() if k != "getConnectionStateListenable"}
_ETCD = Program(
    library="go.etcd.io/etcd/client/v3",
    source="etcd.go",
    call="concurrency.NewMutex(session, prefix), then Lock(ctx), or TryLock(ctx) for one try",
    client="a goroutine with a clientv3.Client and a session of its own",
    stands_on=("google.golang.org/grpc",),
    settings={
        "clientv3.Config.DialTimeout": LIMIT,
        "clientv3.Config.DialOptions": "interceptors that note when keep-alives and grants of "
        "leases are sent",
        "concurrency.WithLease": f"{LEASE}, in whole seconds",
        "context.WithTimeout": f"Lock: the wait; TryLock and Unlock: {LIMIT}",
        **_GO,
    },
)
_REDSYNC = Program(
    library="github.com/go-redsync/redsync/v4",
    source="redis.go",
    call="NewMutex(key, WithExpiry(lease)), then LockContext(ctx), or TryLock() for one try",
    client="a goroutine with a redis.Client per server of its own",
    stands_on=("github.com/redis/go-redis/v9",),
    settings={"redsync.WithExpiry": LEASE, "context.WithTimeout": "LockContext: the wait", **_GO},
    safe={
        "redis.Options.DialTimeout": LIMIT,
        "redis.Options.ReadTimeout": LIMIT,
        "redis.Options.WriteTimeout": LIMIT,
        "redis.Options.MaxRetries": "-1, which is none",
        "redis.Options.ContextTimeoutEnabled": "true",
    },
)
_BSM = replace(
    _REDSYNC,
    library="github.com/bsm/redislock",
    call="Obtain(ctx, key, lease, options)",
    client="a goroutine with a redis.Client of its own",
    settings={
        "redislock.LinearBackoff": "100 ms between tries; one try: no options",
        "context.WithTimeout": "Obtain: the wait",
        "AddHook": "a hook of go-redis that notes when a script is written to a connection",
        **_GO,
    },
)

# Name of a lock in its image → how it is used.
PROGRAMS: Final[Mapping[str, Program]] = MappingProxyType(
    {
        "redisson-rlock": _WATCHED,
        "redisson-rlock-lease": _leased("getLock(key)"),
        "redisson-fair": _leased("getFairLock(key)"),
        "redisson-fenced": _leased("getFencedLock(key)", "tryLockAndGetToken"),
        "redisson-spin": _leased("getSpinLock(key)"),
        "redisson-multilock": _leased("new RedissonMultiLock(getLock(key) of each server)"),
        "redisson-redlock": _leased("new RedissonRedLock(getLock(key) of each server)"),
        "redisson-rlock-sentinel": _redisson(
            _WATCHED.call,
            setCheckLockSyncedSlaves="true",
            useSentinelServers="the three Sentinels",
            **{_NAT: _MAPPED},
        ),
        "redisson-rlock-sentinel-unsynced": _redisson(
            _WATCHED.call,
            setCheckLockSyncedSlaves="false",
            useSentinelServers="the three Sentinels",
            **{_NAT: _MAPPED},
        ),
        "redisson-rlock-cluster": _redisson(
            _WATCHED.call, useClusterServers="every node", **{_NAT: _MAPPED}
        ),
        "curator-mutex": _CURATOR,
        "curator-mutex-no-listener": replace(_CURATOR, settings=_DEAF),
        "curator-semaphore": replace(
            _CURATOR, call="new InterProcessSemaphoreV2(curator, path, 3).acquire(wait, …)"
        ),
        "curator-read-write": replace(
            _CURATOR,
            call="new InterProcessReadWriteLock(curator, path), then readLock() or writeLock()",
        ),
        "jetcd": Program(
            library="io.etcd:jetcd-core",
            source="JetcdLock.java",
            call="getLockClient().lock(key, lease).get(wait), or within 100 ms for one try",
            client="a thread; the clients of one process share a jetcd Client",
            stands_on=("jetcd-grpc", "grpc-core", "vertx-grpc", "vertx-core"),
            settings={
                "interceptor": "notes when keep-alives are sent",
                "getLeaseClient().grant": f"{LEASE}, in whole seconds; within {LIMIT}",
                **_JVM,
            },
            beside="a lease per acquire, kept alive; revoked after unlock, and by whoever gives up",
        ),
        "etcd-concurrency": _ETCD,
        "etcd-concurrency-is-owner": replace(
            _ETCD,
            beside="a grant and a release count only in a transaction that compares IsOwner()",
        ),
        "etcd-concurrency-shared-session": replace(
            _ETCD, client="a goroutine; the clients of one process share one session"
        ),
        "redsync": _REDSYNC,
        "bsm-redislock": _BSM,
    }
)

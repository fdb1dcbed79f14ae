"""One Kubernetes API server with the etcd behind it, as on a cluster's only control-plane node.

Nothing else of Kubernetes runs: no kubelet, no controllers. What is frozen or killed is both. Every
write is synced by etcd before it is acknowledged. Clients speak HTTPS, as it speaks nothing else,
do not verify whom they reach, and show a token of the group ``system:masters``, which Kubernetes'
fair queues let pass at once.

Not like Kubernetes elsewhere: everybody may do everything, and there is one API server. With
several, each behind a load balancer, a partition between API servers and etcd would be possible.
"""

from __future__ import annotations

import json
import secrets
import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http import client
from typing import Any, Final

from lockbench.clusters.base import HARNESS, Topology
from lockbench.clusters.pods.cluster import PodCluster
from lockbench.clusters.pods.launch import Server
from lockbench.clusters.pods.links import PeerPort
from lockbench.clusters.wire import Address, Http, ProbeFailed

HERE: Final = "127.0.0.1"
DATA: Final = "/lockbench/data"
TOKENS: Final = "/lockbench/tokens.csv"
KEYS: Final = "/etc/lockbench-kubernetes"  # the image's
# It keeps nothing from anybody: servers listen on loopback, and everybody may do everything.
TOKEN: Final = "lockbench"  # noqa: S105
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
EMPTY_LIMIT_S: Final = 10.0
ETCD_CLIENT = 50  # ports within the cluster's block
ETCD_PEER = 60

SETTINGS = {
    "nodes": "kube-apiserver and etcd, one of each",
    "authorization-mode": "AlwaysAllow",
    "fsync": "every write",
}


class Https(Http):
    """An HTTPS connection of the harness."""

    good = frozenset({200, 201})

    def __init__(self, address: Address, limit_s: float) -> None:
        super().__init__(address, limit_s)
        unverified = ssl._create_unverified_context()  # noqa: S323, SLF001
        self._http = client.HTTPSConnection(*address, timeout=limit_s, context=unverified)
        self.headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}


class KubernetesServers(PodCluster):
    """One node.

    Neither ``Clocked`` nor ``Syncing``: Go programs read the clock and sync their files without
    the C library, where ``lockbench.clusters.pods.shim`` stands. Not ``Recorded``: etcd is not
    reached through the API.
    """

    kind = "kubernetes"

    def server(self, node: int) -> Server:
        """The API server, and its etcd as its child."""
        base = self._block.base
        store = f"http://{HERE}:{base + ETCD_CLIENT + node}"
        peer = f"http://{HERE}:{base + ETCD_PEER + node}"
        etcd = {
            "name": self.node_name(node),
            "data-dir": DATA,
            "listen-client-urls": store,
            "advertise-client-urls": store,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"{self.node_name(node)}={peer}",
            "log-level": "warn",
        }
        apiserver = {
            "etcd-servers": store,
            "secure-port": str(self.port(node)),
            "advertise-address": HERE,
            "endpoint-reconciler-type": "none",  # nobody looks for it in itself
            "tls-cert-file": f"{KEYS}/cert.pem",
            "tls-private-key-file": f"{KEYS}/key.pem",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": f"{KEYS}/cert.pem",
            "service-account-signing-key-file": f"{KEYS}/key.pem",
            "service-cluster-ip-range": "10.0.0.0/24",
            "token-auth-file": TOKENS,
            "authorization-mode": SETTINGS["authorization-mode"],
        }
        beside = " ".join(("etcd", *_options(etcd)))
        return Server(
            ["sh", "-c", f'{beside} & exec "$@"', "sh", "kube-apiserver", *_options(apiserver)],
            files={TOKENS: f"{TOKEN},lockbench,1,system:masters\n".encode()},
        )

    def before_linking(self, peer: PeerPort) -> None:
        """There is no peer."""

    def check_serves(self, address: Address, limit_s: float, *, read: bool) -> None:
        """Make a Lease of its own, read it from etcd (a read that names no version), and delete
        it; without ``read`` the first and the last."""
        name, holder = f"lockbench-probe-{secrets.token_hex(8)}", secrets.token_hex(8)
        with Https(address, limit_s) as http:
            http.post(LEASES, _lease(name, holder))
            if read:
                found = json.loads(http.get(f"{LEASES}/{name}"))["spec"]["holderIdentity"]
                if found != holder:
                    raise ProbeFailed(f"wrote {holder} and read {found}")
            http.delete(f"{LEASES}/{name}")

    def check_answer(self, address: Address, limit_s: float) -> None:
        with Https(address, limit_s) as http:
            http.get("/readyz")

    @contextmanager
    def pinger(self, address: Address, limit_s: float) -> Iterator[Callable[[], object]]:
        with Https(address, limit_s) as http:
            yield lambda: http.get("/version")

    def remove_everything(self, node: int) -> None:
        """Every Lease of the namespace that locks are in."""
        with Https(self.address(HARNESS, node), EMPTY_LIMIT_S) as http:
            http.delete(LEASES)

    def wipe(self, nodes: Iterable[int]) -> None:
        self._each(list(nodes), self._replace)


def _options(settings: dict[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in settings.items()]


def _lease(name: str, holder: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {"holderIdentity": holder},
    }


TOPOLOGY = Topology(
    name="kubernetes",
    sizes=(1,),
    default_size=1,
    images=("kubernetes",),
    settings=SETTINGS,
    make=KubernetesServers,
    quorum=False,
    restart_s=10.0,
)

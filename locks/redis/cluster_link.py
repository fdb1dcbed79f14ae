"""Connections to whichever node of a Redis Cluster owns a key.

Where the slots are is asked of any node, on the first use and after a failure, and corrected by
what nodes answer: MOVED says that the command was not run and where it belongs, so following it
repeats nothing that might have happened.
https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#redirection-and-resharding

Nodes name addresses. The port says which node is meant, and the node is reached on the link that
this client was given.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from lockbench.clusters.redis.cluster import slot_of
from lockbench.locks.base import Address
from lockbench.locks.redis.client import exceptions
from lockbench.locks.redis.link import Guides, Link, NotSent

REDIRECTIONS_MAX = 5  # a client that is sent in circles has to stop somewhere
ASK_TIMEOUT_S = 0.3  # for the question where the slots are


class ClusterLink(Link):
    """One connection per node in use. ``aim`` says which key the next commands are about."""

    def __init__(self, nodes: Sequence[Address], *, timeout_s: float) -> None:
        super().__init__(nodes[0], timeout_s=timeout_s)
        self._links = {node.port: Link(node, timeout_s=timeout_s) for node in nodes}
        shuffled = random.sample(nodes, len(nodes))
        self._guides = Guides(shuffled, limit_s=min(timeout_s, ASK_TIMEOUT_S))
        self._owners: dict[int, int] = {}  # slot → port, as far as known
        self._slot = 0

    def aim(self, key: str) -> None:
        """The next calls go to the owner of this key."""
        self._slot = slot_of(key)

    def open(self) -> None:
        """Raises NotSent unless the owner of the key answers."""
        if self._slot not in self._owners:
            self._owners[self._slot] = self._discover()
        try:
            self._owner().open()
        except NotSent:
            del self._owners[self._slot]
            raise

    def call(self, *command: str | int) -> Any:
        """One attempt, at the node that it belongs to. Raises RedisError; NotSent where it was
        redirected to a node that does not answer."""
        for _ in range(REDIRECTIONS_MAX):
            owner = self._owner()
            try:
                answer = owner.call(*command)
            except exceptions.MovedError as error:
                if error.port not in self._links:
                    raise
                self._owners[self._slot] = error.port
                self.open()
            except exceptions.RedisError as error:
                # After an error reply the connection is good; else perhaps it is not the owner.
                if isinstance(error, exceptions.ClusterDownError) or not isinstance(
                    error, exceptions.ResponseError
                ):
                    self._owners.pop(self._slot, None)
                raise
            else:
                self.sent_ns = owner.sent_ns
                return answer
        raise NotSent("redirected in circles")

    def close(self) -> None:
        for link in self._links.values():
            link.close()

    def _owner(self) -> Link:
        return self._links[self._owners[self._slot]]

    def _discover(self) -> int:
        """The port of the slot's owner, by the first node that answers and knows it."""

        def owner(guide: Link) -> int:
            for first, last, owner, *_ in guide.call("CLUSTER", "SLOTS"):
                if first <= self._slot <= last and int(owner[1]) in self._links:
                    return int(owner[1])
            raise LookupError("nobody owns the slot")

        try:
            return self._guides.find(owner)
        except NotSent as error:
            raise NotSent(f"no node knows an owner: {error}") from error

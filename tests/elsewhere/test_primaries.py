"""Which of the nodes that Sentinels watch takes writes, while a dead primary comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from pathlib import Path

import pytest

from lockbench.clusters.elsewhere import redis
from lockbench.clusters.elsewhere.redis import SentinelPlace
from lockbench.clusters.elsewhere.site import Site, SiteError, read
from lockbench.clusters.wire import Address

A, B, C, WATCHER = (("127.0.0.1", port) for port in (1, 2, 3, 4))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    file = tmp_path / "file.toml"
    nodes = '["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]'
    file.write_text(
        f'topology = "sentinel"\nnodes = {nodes}\nsentinels = ["127.0.0.1:4"]\nmaster = "m"\n'
    )
    monkeypatch.setattr(redis, "SETTLE_LIMIT_S", 1e9)
    monkeypatch.setattr(redis, "SETTLE_POLL_S", 0.001)
    watches(monkeypatch, A, B, C)
    return read(file)


def watches(monkeypatch: pytest.MonkeyPatch, *nodes: Address) -> None:
    """Sentinels know these nodes and themselves."""
    known = {node: node[1] for node in (*nodes, WATCHER)}
    monkeypatch.setattr(SentinelPlace, "_announced", lambda *_: known)


def told(monkeypatch: pytest.MonkeyPatch, *roles: str) -> None:
    """What the nodes say of themselves, each time that they are asked; the last for ever."""
    said = chain(roles, repeat(roles[-1]))

    def answer(site: Site, _: Sequence[Address]) -> Mapping[str, Mapping[str, str]]:
        here = next(said).split()
        return {
            str(node): {"redis_mode": mode, "role": role, "redis_version": "8"}
            for node, role, mode in zip(
                site.nodes, (*here, "sentinel"), (*["standalone"] * 3, "sentinel"), strict=True
            )
        }

    monkeypatch.setattr(redis, "_told", answer)


def test_a_primary_that_is_back_becomes_a_replica(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(monkeypatch, *["master master slave"] * 3, "slave master slave")
    assert SentinelPlace().identify(site, [A, B, C, WATCHER]) == "Redis 8"


@pytest.mark.parametrize(
    ("roles", "takes"),
    [
        ("master master slave", "127.0.0.1:1 and 127.0.0.1:2 do"),
        ("slave slave slave", "none does"),
    ],
)
def test_two_primaries_that_stay_are_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch, roles: str, takes: str
) -> None:
    told(monkeypatch, roles)
    monkeypatch.setattr(redis, "SETTLE_LIMIT_S", 0.0)
    with pytest.raises(SiteError, match=f"has to take writes, and {takes}"):
        SentinelPlace().identify(site, [A, B, C, WATCHER])


def test_a_node_that_no_sentinel_watches_is_refused_at_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(monkeypatch, "master slave master")
    watches(monkeypatch, A, B)
    with pytest.raises(SiteError, match=r"do not watch 127\.0\.0\.1:3"):
        SentinelPlace().identify(site, [A, B, C, WATCHER])

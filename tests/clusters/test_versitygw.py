"""VersityGW: how requests are signed, how versions are read page by page, and a real server that is
frozen, killed and emptied.

The real one is marked long: its image takes minutes to build.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from lockbench.clusters import images
from lockbench.clusters.base import Clocked, ClusterPlan, Led, Syncing
from lockbench.clusters.versitygw import bucket, protocol
from lockbench.clusters.versitygw.bucket import PLAIN, VERSIONED, Version
from lockbench.clusters.versitygw.protocol import Answer, Session
from lockbench.clusters.versitygw.servers import VersityGateway
from lockbench.clusters.wire import ProbeFailed
from tests.clusters.conftest import Start
from tests.clusters.json_server import answering
from tests.clusters.waiting import PROBE_S, SURE_S, serve
from tests.eventually import eventually

LIMIT_S = 5.0


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("lifecycle=", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ("max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ],
)
def test_requests_are_signed_as_in_aws_own_examples(
    query: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html"""
    monkeypatch.setattr(protocol, "ACCESS", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setattr(protocol, "SECRET", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    at = time.strptime("20130524T000000Z", "%Y%m%dT%H%M%SZ")
    host = "examplebucket.s3.amazonaws.com"
    found = protocol.signature("GET", "/", query, host, body=b"", at=at)
    assert found["Authorization"].endswith(f"Signature={expected}")


def test_a_connection_is_kept_and_one_that_was_not_answered_is_closed() -> None:
    answers: list[tuple[int, object] | None] = [(200, b"a"), (412, b"b"), None]
    with answering(lambda *_: answers.pop(0)) as (port, clients):
        with Session(("127.0.0.1", port), LIMIT_S) as session:
            assert session.ask("GET", "/x").body == b"a"
            assert session.ask("PUT", "/x", body=b"1").status == 412
            assert not session.gone()
            with pytest.raises((OSError, ProbeFailed)):
                session.ask("PUT", "/x", body=b"2")
            assert session.gone()
            with pytest.raises(ProbeFailed):
                session.ask("GET", "/x")
        assert len(clients) == 1, "nothing was sent again"


def test_a_request_has_no_more_time_than_is_left() -> None:
    with (
        answering(lambda *_: (200, b"")) as (port, _),
        Session(("127.0.0.1", port), LIMIT_S) as session,
    ):
        session.within(0.0)
        with pytest.raises(TimeoutError):
            session.ask("GET", "/x")


def page(versions: str, *marker: str) -> Answer:
    truncated = str(bool(marker)).lower()
    text = f"<IsTruncated>{truncated}</IsTruncated>{versions}"
    if marker:
        key, number = marker
        text += f"<NextKeyMarker>{key}</NextKeyMarker>"
        text += f"<NextVersionIdMarker>{number}</NextVersionIdMarker>"
    space = "http://s3.amazonaws.com/doc/2006-03-01/"
    text = f'<ListVersionsResult xmlns="{space}">{text}</ListVersionsResult>'
    return Answer(200, "", text.encode())


def version(key: str, number: str, kind: str = "Version") -> str:
    return f"<{kind}><Key>{key}</Key><VersionId>{number}</VersionId></{kind}>"


class Pages:
    """A session that answers with one page after the other."""

    def __init__(self, *pages: Answer) -> None:
        self._pages = list(pages)
        self.queries: list[Any] = []

    def ask(self, method: str, path: str, *, query: Any) -> Answer:
        assert (method, path) == ("GET", "/b")
        self.queries.append(query)
        return self._pages.pop(0)


def test_versions_are_read_to_the_last_page_and_each_is_there_once() -> None:
    """A page may begin with what the one before ended with."""
    pages: Any = Pages(
        page(version("k0", "3") + version("k0", "2"), "k0", "2"),
        page(version("k0", "2") + version("k0", "1") + version("k1", "9", "DeleteMarker")),
    )
    assert bucket.versions(pages, "b", "k") == [
        Version("k0", "3", marker=False),
        Version("k0", "2", marker=False),
        Version("k0", "1", marker=False),
        Version("k1", "9", marker=True),
    ]
    first, second = pages.queries
    assert first == {"versions": "", "prefix": "k"}
    assert second == {**first, "key-marker": "k0", "version-id-marker": "2"}


def test_it_is_built_only_when_a_store_asks_for_it() -> None:
    assert "versitygw" not in images.server_names()


def test_what_it_can_do() -> None:
    cluster = VersityGateway(ClusterPlan("versitygw", 1, 1, "run", 3.0, "logs"))
    assert not isinstance(cluster, Clocked | Led | Syncing)
    cluster.stop()


@pytest.mark.docker
@pytest.mark.long
def test_a_server_that_is_frozen_killed_and_emptied(start: Start) -> None:
    one = start("versitygw", 1)
    at = one.address(1, 1)
    one.pause([1])
    assert not one.serves(1, PROBE_S)
    one.unpause([1])
    assert one.serves(1, SURE_S)

    path = f"/{VERSIONED}/a/x"
    with Session(at, LIMIT_S) as session:
        first = session.ask("PUT", path, body=b"1", headers={"If-None-Match": "*"})
        assert first.status == 200
        assert session.ask("PUT", path, body=b"2", headers={"If-None-Match": "*"}).status == 412
        on_it = {"If-Match": first.etag}
        assert session.ask("PUT", path, body=b"2", headers=on_it).status == 200
        assert session.ask("PUT", path, body=b"3", headers=on_it).status == 412
        assert session.ask("PUT", f"/{PLAIN}/a/x", body=b"1").status == 200
        last, before = bucket.versions(session, VERSIONED, "a/")
        for which, body in ((last, b"2"), (before, b"1")):
            assert session.ask("GET", path, query={"versionId": which.id}).body == body
        assert len(bucket.versions(session, PLAIN, "a/")) == 1

    one.kill([1])
    assert not one.serves(1, PROBE_S)
    one.restart([1])
    eventually(lambda: serve(one))
    with Session(at, LIMIT_S) as session:
        assert bucket.versions(session, VERSIONED, "a/") == [last, before]
    one.empty()
    with Session(at, LIMIT_S) as session:
        assert bucket.versions(session, VERSIONED) == []
        assert session.ask("GET", f"/{PLAIN}/a/x").status == 404
    one.verify()

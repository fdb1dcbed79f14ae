"""The two buckets: one keeps every version of its objects, the other only the last.

Versions are made by the server, in the step that replaces an object, and no write takes one away
(https://docs.aws.amazon.com/AmazonS3/latest/userguide/Versioning.html).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from lockbench.clusters.versitygw.protocol import CONFLICT, OK, Answer, Session
from lockbench.clusters.wire import ProbeFailed
from lockbench.declarations.lazy import lazy

if TYPE_CHECKING:
    from xml.etree import ElementTree as ET
else:
    ET = lazy("xml.etree.ElementTree")

PLAIN: Final = "lockbench"
VERSIONED: Final = "lockbench-versions"
UNVERSIONED: Final = "null"  # the id of what is in a bucket without versions
KEEP: Final = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
REMOVED: Final = frozenset({OK, 204})


class Version(NamedTuple):
    """One object as it once was, or that it was deleted (``marker``)."""

    key: str
    id: str
    marker: bool


def make(session: Session) -> None:
    """Both are there, whether or not they were before. Raises OSError, ProbeFailed."""
    for name in (VERSIONED, PLAIN):
        done(session.ask("PUT", f"/{name}"), {OK, CONFLICT})  # another one has made it
    done(session.ask("PUT", f"/{VERSIONED}", query={"versioning": ""}, body=KEEP))


def versions(session: Session, bucket: str, prefix: str = "") -> list[Version]:
    """Everything that a bucket has or had, of each key the newest first. Raises OSError,
    ProbeFailed."""
    found: dict[Version, None] = {}  # a page may begin with what the one before ended with
    begin: Mapping[str, str] = {}
    while True:
        query = {"versions": "", "prefix": prefix, **begin}
        page = ET.fromstring(done(session.ask("GET", f"/{bucket}", query=query)).body)
        for one in page:
            kind = one.tag.rpartition("}")[2]
            if kind in {"Version", "DeleteMarker"}:
                key, number = (one.findtext(f"{{*}}{name}", "") for name in ("Key", "VersionId"))
                found[Version(key, number, kind == "DeleteMarker")] = None
        if page.findtext("{*}IsTruncated") != "true":
            return list(found)
        begin = {
            "key-marker": page.findtext("{*}NextKeyMarker", ""),
            "version-id-marker": page.findtext("{*}NextVersionIdMarker", ""),
        }


def empty(session: Session) -> None:
    """Removes every object, with all that it was. Raises OSError, ProbeFailed."""
    for bucket in (VERSIONED, PLAIN):
        for one in versions(session, bucket):
            query = {} if one.id == UNVERSIONED else {"versionId": one.id}
            done(session.ask("DELETE", f"/{bucket}/{one.key}", query=query), REMOVED)


def done(answer: Answer, good: frozenset[int] | set[int] = frozenset({OK})) -> Answer:
    """An answer that has one of these statuses. Raises ProbeFailed."""
    if answer.status not in good:
        raise ProbeFailed(answer.said)
    return answer

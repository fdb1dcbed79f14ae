"""Paths in messages of ZooKeeper, written by kazoo."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kazoo.protocol import serialization as jute
from kazoo.security import OPEN_ACL_UNSAFE

from lockbench.clusters.elsewhere.chroot import Chroot, Unknown

ROOT = "/team-a"
BELOW, ITSELF = "/lockbench/k0", "/"
SET_WATCHES, RECONFIG = 101, 16


def asked(request: Any, xid: int = 1) -> bytes:
    return struct.pack(">ii", xid, request.type) + bytes(request.serialize())


def answered(body: bytes, xid: int = 1, error: int = 0) -> bytes:
    return struct.pack(">iqi", xid, 7, error) + body


def text(path: str) -> bytes:
    return struct.pack(">i", len(path)) + path.encode()


def requests(path: str) -> list[Any]:
    return [
        jute.Create(path, b"x" * 300, OPEN_ACL_UNSAFE, 3),
        jute.Create2(path, b"x", OPEN_ACL_UNSAFE, 0),
        jute.Delete(path, -1),
        jute.Exists(path, None),
        jute.GetData(path, None),
        jute.GetChildren(path, None),
        jute.GetChildren2(path, None),
        jute.SetData(path, b"y", 3),
        jute.GetACL(path),
        jute.SetACL(path, OPEN_ACL_UNSAFE, 1),
        jute.Sync(path),
        jute.Transaction(
            [
                jute.Create(path, b"x", OPEN_ACL_UNSAFE, 0),
                jute.SetData(path, b"y", -1),
                jute.CheckVersion(path, 2),
                jute.Delete(path, -1),
            ]
        ),
    ]


@pytest.mark.parametrize("number", range(len(requests(BELOW))))
def test_every_request_is_about_what_is_below(number: int) -> None:
    for path, there in ((BELOW, ROOT + BELOW), (ITSELF, ROOT)):
        inside = Chroot(ROOT).request(asked(requests(path)[number]))
        assert inside == asked(requests(there)[number])


def test_what_is_answered_and_told_is_seen_from_below() -> None:
    chroot = Chroot(ROOT)
    chroot.request(asked(requests(BELOW)[0]))
    assert chroot.answer(answered(text(ROOT + BELOW))) == answered(text(BELOW))
    chroot.request(asked(requests(BELOW)[0]))
    assert chroot.answer(answered(b"", error=-110)) == answered(b"", error=-110)
    told = struct.pack(">ii", 2, 3)
    for path, seen in (
        (ROOT + BELOW, BELOW),
        (ROOT, "/"),
        ("", ""),
        ("/team-alone", "/team-alone"),
    ):
        event = answered(told + text(path), xid=-1)
        assert chroot.answer(event) == answered(told + text(seen), xid=-1)
    data = answered(struct.pack(">i", 4) + b"/x/y" + bytes(68))
    assert chroot.answer(data) == data


def test_the_parts_of_a_transaction_are_answered_from_below() -> None:
    def parts(path: str) -> bytes:
        heads = [struct.pack(">i?i", kind, False, 0) for kind in (1, 5, 13, 2)]
        bodies = [text(path), bytes(68), b"", b""]
        failed = struct.pack(">i?i", -1, False, -101) + struct.pack(">i", -101)
        end = struct.pack(">i?i", -1, True, -1)
        return b"".join(map(bytes.__add__, heads, bodies)) + failed + end

    chroot = Chroot(ROOT)
    chroot.request(asked(requests(BELOW)[-1], xid=9))
    assert chroot.answer(answered(parts(ROOT + BELOW), xid=9)) == answered(parts(BELOW), xid=9)


def test_watches_are_set_again_below() -> None:
    def watches(path: str) -> bytes:
        one = struct.pack(">i", 1) + text(path)
        return struct.pack(">iiq", -8, SET_WATCHES, 5) + one + struct.pack(">i", 0) + one

    assert Chroot(ROOT).request(watches(BELOW)) == watches(ROOT + BELOW)


def test_what_is_not_known_is_not_asked() -> None:
    with pytest.raises(Unknown, match="operation 16"):
        Chroot(ROOT).request(struct.pack(">ii", 1, RECONFIG) + text("/zookeeper/config"))
    for cut in range(9, 25, 3):
        with pytest.raises(ValueError, match="shorter than it says"):
            Chroot(ROOT).request(asked(requests(BELOW)[0])[:cut])

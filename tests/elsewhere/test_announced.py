"""Addresses in what Redis servers say, in both versions of the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from lockbench.clusters.elsewhere.announced import Announced, read
from lockbench.clusters.elsewhere.place import Refused, Side

NODES = {("10.0.0.1", 6379): 1, ("redis-b", 6380): 2}
WAYS = {1: ("127.0.0.2", 20001), 2: ("127.0.0.2", 20002)}


class Written:
    """Where a side writes to."""

    def __init__(self) -> None:
        self.said = b""

    def write(self, data: bytes) -> None:
        self.said += data

    async def drain(self) -> None:
        """At once."""


def passed(said: bytes, *, requests: bool = False, names: bool = False) -> bytes:
    """What arrives at the other side."""

    async def run() -> bytes:
        reader = asyncio.StreamReader()
        reader.feed_data(said)
        reader.feed_eof()
        here = Side(reader, cast("Any", Written()))
        there = Written()
        other = Side(asyncio.StreamReader(), cast("Any", there))
        client, server = (here, other) if requests else (other, here)
        known = {b"lockbench": b"shop"} if names else {}
        talk = Announced(client, server, NODES, WAYS, known)
        await (talk.requests() if requests else talk.answers())
        return there.said

    return asyncio.run(run())


def array(*words: bytes, sign: bytes = b"*") -> bytes:
    count = len(words) // (2 if sign == b"%" else 1)
    return b"%b%d\r\n" % (sign, count) + b"".join(words)


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text)


def bulks(*texts: bytes, sign: bytes = b"*") -> bytes:
    return array(*map(bulk, texts), sign=sign)


@pytest.mark.parametrize(
    ("said", "arrives"),
    [
        (b"-MOVED 3999 10.0.0.1:6379\r\n", b"-MOVED 3999 127.0.0.2:20001\r\n"),
        (b"-ASK 1 redis-b:6380\r\n", b"-ASK 1 127.0.0.2:20002\r\n"),
        (bulks(b"10.0.0.1", b"6379"), bulks(b"127.0.0.2", b"20001")),
        (
            array(b":0\r\n", b":9\r\n", array(bulk(b"10.0.0.1"), b":6379\r\n", bulk(b"id"))),
            array(b":0\r\n", b":9\r\n", array(bulk(b"127.0.0.2"), b":20001\r\n", bulk(b"id"))),
        ),
        (
            bulks(b"name", b"shop", b"ip", b"redis-b", b"port", b"6380", sign=b"%"),
            bulks(b"name", b"shop", b"ip", b"127.0.0.2", b"port", b"20002", sign=b"%"),
        ),
        (  # as CLUSTER SHARDS tells a node
            bulks(b"id", b"x", b"port", b"6379", b"ip", b"10.0.0.1", b"endpoint", b"10.0.0.1"),
            bulks(b"id", b"x", b"port", b"20001", b"ip", b"127.0.0.2", b"endpoint", b"127.0.0.2"),
        ),
        (
            bulk(b"aa 10.0.0.1:6379@16379,a.example myself,master - 0 0 1 connected 0-5\n"),
            bulk(b"aa 127.0.0.2:20001@16379 myself,master - 0 0 1 connected 0-5\n"),
        ),
    ],
)
def test_an_address_of_a_node_becomes_our_own_way(said: bytes, arrives: bytes) -> None:
    assert passed(said) == arrives


@pytest.mark.parametrize(
    "said",
    [
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":-12\r\n",
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"_\r\n",
        b"#t\r\n",
        b",1.5\r\n",
        bulk(b"-MOVED 1 10.0.0.1:6379\r\n"),
        bulks(b"10.0.0.9", b"6379"),
        array(bulk(b"message"), bulk(b"channel"), bulk(bytes(range(256)) * 9), sign=b">"),
        array(array(), array(b"$-1\r\n", b"*-1\r\n")),
    ],
)
def test_everything_else_passes_unchanged(said: bytes) -> None:
    assert passed(said * 3) == said * 3
    assert passed(said, names=True) == said


def test_who_is_sent_to_a_stranger_is_not_sent_there() -> None:
    with pytest.raises(Refused, match=r"sends to 10\.0\.0\.9:6379, which is none of the nodes"):
        passed(b"-MOVED 1 10.0.0.9:6379\r\n")


def test_the_name_of_a_primary_is_the_files() -> None:
    asked = bulks(b"SENTINEL", b"MASTER", b"lockbench")
    assert passed(asked, requests=True, names=True) == bulks(b"SENTINEL", b"MASTER", b"shop")
    assert passed(asked, requests=True) == asked
    assert passed(bulks(b"name", b"shop"), names=True) == bulks(b"name", b"lockbench")


@pytest.mark.parametrize("said", [b"$x\r\n", b"*99999\r\n" * 99])
def test_nonsense_is_no_answer(said: bytes) -> None:
    async def run(pieces: Sequence[bytes]) -> None:
        reader = asyncio.StreamReader()
        for piece in pieces:
            reader.feed_data(piece)
        reader.feed_eof()
        await read(reader)

    with pytest.raises(ValueError, match=r"invalid literal|lists in lists"):
        asyncio.run(run([said]))

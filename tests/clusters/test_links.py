import pytest

from clusters import links
from clusters.base import ClusterError, Edge
from clusters.links import (
    HOUR_MS,
    PATIENT,
    PATIENT_ENV,
    PeerPort,
    ProxyCut,
    Toxic,
    cut_plan,
    edges,
    toxics,
)

QUORUM = PeerPort("quorum")
ELECTION = PeerPort("election", drop_as="reject")


def flat(cuts: list[ProxyCut]) -> list[tuple[int, str, list[str], bool]]:
    return [(c.pod, c.proxy, [t.name for t in c.toxics], c.disable) for c in cuts]


def test_edges_join_every_pair_both_ways_and_every_group_to_every_node() -> None:
    found = edges((1, 2, 3), 2, (QUORUM,))
    between = [e for e in found if e.source > 0]
    assert len(between) == len(set(between)) == 6
    assert all(e.source != e.target for e in between)
    assert {e for e in found if e.source < 0} == {Edge(-g, j) for g in (1, 2) for j in (1, 2, 3)}
    assert len(found) == 12


def test_nodes_that_do_not_talk_have_no_edges_between_them() -> None:
    assert edges((1, 2), 1, ()) == [Edge(-1, 1), Edge(-1, 2)]


def test_a_drop_keeps_the_end_back_before_it_drops() -> None:
    assert toxics("drop") == [
        Toxic("slow_close", "upstream", {"delay": HOUR_MS}),
        Toxic("timeout", "upstream", {"timeout": 0}),
        Toxic("slow_close", "downstream", {"delay": HOUR_MS}),
        Toxic("timeout", "downstream", {"timeout": 0}),
    ]


def test_a_stall_holds_the_bytes_and_then_the_end() -> None:
    assert [(t.type, t.stream, dict(t.attributes)) for t in toxics("stall")] == [
        ("latency", "upstream", {"latency": HOUR_MS}),
        ("slow_close", "upstream", {"delay": HOUR_MS}),
        ("latency", "downstream", {"latency": HOUR_MS}),
        ("slow_close", "downstream", {"delay": HOUR_MS}),
    ]


def test_a_link_between_nodes_is_cut_where_it_starts() -> None:
    (cut,) = cut_plan([Edge(2, 3)], "drop", (QUORUM,))
    assert (cut.pod, cut.proxy, cut.disable) == (2, "quorum-3", False)
    assert list(cut.toxics) == toxics("drop")


def test_a_client_link_is_cut_where_it_ends() -> None:
    (cut,) = cut_plan([Edge(-4, 3)], "stall", (QUORUM,))
    assert (cut.pod, cut.proxy) == (3, "client-4")
    assert list(cut.toxics) == toxics("stall")


def test_a_reject_disables_every_port_and_adds_nothing() -> None:
    cuts = cut_plan([Edge(1, 2)], "reject", (ELECTION, QUORUM))
    assert flat(cuts) == [(1, "election-2", [], True), (1, "quorum-2", [], True)]


def test_a_port_that_a_silent_connection_would_block_refuses_when_dropped() -> None:
    election, quorum = cut_plan([Edge(1, 2)], "drop", (ELECTION, QUORUM))
    assert election.disable
    assert not election.toxics
    assert not quorum.disable
    assert list(quorum.toxics) == toxics("drop")


def test_a_stall_holds_that_port_too() -> None:
    election, _ = cut_plan([Edge(1, 2)], "stall", (ELECTION, QUORUM))
    assert list(election.toxics) == toxics("stall")


def test_nothing_towards_a_paused_node_is_disabled() -> None:
    election, _ = cut_plan([Edge(1, 2)], "drop", (ELECTION, QUORUM), paused=[2])
    assert not election.disable
    assert list(election.toxics) == toxics("drop")
    with pytest.raises(ClusterError, match="node 2 is paused"):
        cut_plan([Edge(1, 2)], "reject", (QUORUM,), paused=[2])
    assert cut_plan([Edge(1, 2)], "reject", (QUORUM,), paused=[1])


def test_the_link_of_the_harness_is_never_cut() -> None:
    with pytest.raises(ClusterError, match="never cut"):
        cut_plan([Edge(0, 1)], "drop", ())


def test_only_the_links_of_a_patient_port_are_called_so() -> None:
    (cut,) = cut_plan([Edge(1, 2)], "drop", (PeerPort("quorum", patient=True),))
    assert cut.proxy == "patient-quorum-2"
    assert PATIENT_ENV == {"LOCKBENCH_PATIENT_LINKS": "patient-"}
    assert not links.client_link(1).startswith(PATIENT)
    assert not links.peer_link(QUORUM, 2).startswith(PATIENT)

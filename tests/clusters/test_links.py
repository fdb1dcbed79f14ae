import pytest

from lockbench.clusters.base import ClusterError, Cut, Edge, Shape
from lockbench.clusters.pods import links
from lockbench.clusters.pods.links import (
    BOTH,
    PATIENT,
    PATIENT_ENV,
    Link,
    PeerPort,
    ProxyCut,
    Stream,
    base,
    cut_plan,
    edges,
    one_way_plan,
    shaped,
)

QUORUM = PeerPort("quorum")
ELECTION = PeerPort("election", drop_as="reject")


def test_edges_join_every_pair_both_ways_and_every_group_to_every_node() -> None:
    found = edges((1, 2, 3), 2, (QUORUM,))
    between = [e for e in found if e.source > 0]
    assert len(between) == len(set(between)) == 6
    assert all(e.source != e.target for e in between)
    assert {e for e in found if e.source < 0} == {Edge(-g, j) for g in (1, 2) for j in (1, 2, 3)}
    assert len(found) == 12


def test_nodes_that_do_not_talk_have_no_edges_between_them() -> None:
    assert edges((1, 2), 1, ()) == [Edge(-1, 1), Edge(-1, 2)]


@pytest.mark.parametrize(
    ("edge", "how", "cuts"),
    [
        # A link between nodes is cut where it starts, a client's where it ends.
        (Edge(2, 3), "stall", [(2, "election-3", "stall"), (2, "quorum-3", "stall")]),
        (Edge(-4, 3), "stall", [(3, "client-4", "stall")]),
        (Edge(-4, 3), "drop", [(3, "client-4", "drop")]),
        (Edge(1, 2), "reject", [(1, "election-2", "reject"), (1, "quorum-2", "reject")]),
        # A port that a silent connection would block refuses when it is dropped.
        (Edge(1, 2), "drop", [(1, "election-2", "reject"), (1, "quorum-2", "drop")]),
    ],
)
def test_a_link_is_cut_both_ways(edge: Edge, how: Cut, cuts: list[tuple[int, str, Cut]]) -> None:
    assert cut_plan([edge], how, (ELECTION, QUORUM)) == [ProxyCut(*cut, BOTH) for cut in cuts]


def test_one_way_between_nodes_is_the_requests_there_and_the_replies_back() -> None:
    assert one_way_plan([Edge(1, 2)], "drop", (ELECTION, QUORUM)) == [
        ProxyCut(1, "election-2", "drop", ("upstream",)),
        ProxyCut(1, "quorum-2", "drop", ("upstream",)),
        ProxyCut(2, "election-1", "drop", ("downstream",)),
        ProxyCut(2, "quorum-1", "drop", ("downstream",)),
    ]


def test_both_one_way_cuts_of_a_pair_are_both_two_way_cuts() -> None:
    pair = [Edge(1, 2), Edge(2, 1)]
    one_way = {
        (cut.proxy, way) for cut in one_way_plan(pair, "stall", (QUORUM,)) for way in cut.streams
    }
    two_way = {
        (cut.proxy, way) for cut in cut_plan(pair, "stall", (QUORUM,)) for way in cut.streams
    }
    assert one_way == two_way


def test_one_way_with_a_client_group_is_its_requests_or_its_replies() -> None:
    plan = one_way_plan([Edge(-2, 3), Edge(3, -2)], "stall", (QUORUM,))
    assert plan == [
        ProxyCut(3, "client-2", "stall", ("upstream",)),
        ProxyCut(3, "client-2", "stall", ("downstream",)),
    ]


@pytest.mark.parametrize("edge", [Edge(0, 1), Edge(1, 0)])
def test_the_link_of_the_harness_is_never_cut(edge: Edge) -> None:
    with pytest.raises(ClusterError, match="own link to node 1 is never cut"):
        cut_plan([edge], "drop", ())
    with pytest.raises(ClusterError, match="own link to node 1 is never cut"):
        one_way_plan([edge], "drop", ())


def test_what_has_no_meaning_is_refused() -> None:
    with pytest.raises(ClusterError, match="a refusal has no direction"):
        one_way_plan([Edge(1, 2)], "reject", (QUORUM,))
    with pytest.raises(ClusterError, match="no links between them"):
        one_way_plan([Edge(-1, -2)], "drop", (QUORUM,))
    with pytest.raises(ClusterError, match="no link starts at node 1"):
        cut_plan([Edge(1, -1)], "drop", (QUORUM,))


def test_a_shape_is_latency_by_direction_and_the_rest_for_both() -> None:
    assert shaped(Shape(3, 4, 8, 5, 6, 7)) == Link(
        streams={"upstream": Stream("", 3, 8, 5, 6, 7), "downstream": Stream("", 4, 8, 5, 6, 7)}
    )
    with pytest.raises(ClusterError, match="negative"):
        shaped(Shape(rate_kb_s=-1))


def test_the_networks_are_what_they_are_called() -> None:
    nothing = Link(streams={"upstream": Stream(), "downstream": Stream()})
    assert base("loopback") == nothing
    assert base("region").streams["downstream"].latency_us == 15_000
    with pytest.raises(
        ClusterError, match="no network is called wan; there are loopback, rack, az"
    ):
        base("wan")


def test_only_the_links_of_a_patient_port_are_called_so() -> None:
    (cut,) = cut_plan([Edge(1, 2)], "drop", (PeerPort("quorum", patient=True),))
    assert cut.proxy == "patient-quorum-2"
    assert PATIENT_ENV == {"LOCKBENCH_PATIENT_LINKS": "patient-"}
    assert not links.client_link(1).startswith(PATIENT)
    assert not links.peer_link(QUORUM, 2).startswith(PATIENT)

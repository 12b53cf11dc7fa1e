"""Free slots: which ones, in which order, and counts after taking and releasing."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from problems import chain, nodes_of, problems

from inventory.cluster import Cluster, ExistingWorker, Node
from scheduler.problem import Problem, Slot
from scheduler.toolkit.slots import FreeSlots, interleaved, running, waiting
from workloads.topology import Executor


def free_of(cluster: Cluster) -> FreeSlots:
    return FreeSlots(Problem(cluster, ()))


def test_storms_example_of_interleaving() -> None:
    ports = {"s1": (6700, 6701), "s2": (6700, 6701, 6702), "s3": (6700, 6701, 6702, 6703)}
    cluster = Cluster(
        tuple(Node(id=name, slots=len(node_ports), ports=node_ports) for name, node_ports in ports.items())
    )
    order = [f"{slot.node}:{ports[slot.node][slot.index]}" for slot in interleaved(free_of(cluster))]
    assert " ".join(order) == ("s3:6700 s2:6700 s1:6700 s3:6701 s2:6701 s1:6701 s3:6702 s2:6702 s3:6703")


def test_equal_nodes_are_interleaved_by_id_in_any_order_of_the_file() -> None:
    assert [slot.node for slot in interleaved(free_of(nodes_of(b=1, a=1, c=2)))] == ["c", "a", "b", "c"]


def test_ports_decide_the_order_within_a_node() -> None:
    cluster = Cluster((Node(id="n", slots=3, ports=(6703, 6701, 6702)),))
    free = free_of(cluster)
    assert [slot.index for slot in free.of("n")] == [1, 2, 0]
    assert free.lowest("n") == Slot("n", 1)


def test_unavailable_nodes_have_no_free_slots_and_their_executors_wait() -> None:
    cluster = Cluster(
        (Node(id="up", slots=2), Node(id="down", slots=2, available=False)),
        existing=(ExistingWorker("t", "up", 0, ("a[0]",)), ExistingWorker("t", "down", 0, ("a[1]",))),
    )
    problem = Problem(cluster, (chain(3),))
    free = FreeSlots(problem)
    assert (free.total, free.count("up"), free.count("down"), free.lowest("down")) == (1, 1, 0, None)
    assert list(free.of("down")) == []
    workers = running(problem)["t"]
    assert workers == {Slot("up", 0): (Executor("a", 0),)}
    assert waiting(problem.topologies[0], workers) == [Executor("a", 1), Executor("a", 2)]


def test_a_slot_cannot_be_taken_or_released_twice() -> None:
    free = free_of(nodes_of(n=2))
    free.take(Slot("n", 1))
    for wrong in (Slot("n", 1), Slot("n", 2), Slot("m", 0)):
        with pytest.raises(ValueError, match="not free"):
            free.take(wrong)
    with pytest.raises(ValueError, match="free already"):
        free.release(Slot("n", 0))


def test_very_many_slots_are_not_materialised() -> None:
    free = free_of(Cluster(tuple(Node(id=f"n{at:04}", slots=65535) for at in range(2000))))
    assert free.total == 2000 * 65535
    assert [slot.node for slot in islice(interleaved(free), 3)] == ["n0000", "n0001", "n0002"]


@given(problems())
def test_free_and_occupied_slots_make_up_the_cluster(problem: Problem) -> None:
    free = FreeSlots(problem)
    occupied = {slot for workers in running(problem).values() for slot in workers}
    offered = [slot for node in problem.cluster.nodes for slot in free.of(node.id)]
    all_slots = {Slot(node.id, index) for node in problem.cluster.available for index in range(node.slots)}
    assert len(offered) == free.total == len(set(offered))
    assert set(offered) == all_slots - occupied
    assert sorted(interleaved(free)) == sorted(offered)


class FreeSlotsAgainstASet(RuleBasedStateMachine):
    """Free slots agree with a set of slots after any sequence of taking and releasing."""

    def __init__(self) -> None:
        super().__init__()
        self.ports = {"a": None, "b": (9, 7, 8)}
        self.cluster = Cluster((Node(id="a", slots=3), Node(id="b", slots=3, ports=(9, 7, 8))))
        self.free = free_of(self.cluster)
        self.model = {Slot(node, index) for node in "ab" for index in range(3)}

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(sorted(self.model)))
        self.free.take(slot)
        self.model.remove(slot)

    @precondition(lambda self: len(self.model) < 6)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        all_slots = {Slot(node, index) for node in "ab" for index in range(3)}
        slot = data.draw(st.sampled_from(sorted(all_slots - self.model)))
        self.free.release(slot)
        self.model.add(slot)

    @invariant()
    def agrees(self) -> None:
        assert self.free.total == len(self.model)
        assert self.free.nodes() == sorted({slot.node for slot in self.model})
        for node in "ab":
            ports = self.ports[node]
            expected = sorted(
                (s for s in self.model if s.node == node), key=lambda s: ports[s.index] if ports else s.index
            )
            assert list(self.free.of(node)) == expected
            assert self.free.count(node) == len(expected)
            assert self.free.lowest(node) == (expected[0] if expected else None)
            assert all(self.free.is_free(Slot(node, i)) == (Slot(node, i) in self.model) for i in range(3))


TestFreeSlots = FreeSlotsAgainstASet.TestCase

"""Acknowledgements over scripted links: every record's tuple tree completes exactly once, in any topology and order."""

from collections import Counter
from random import Random

import msgspec
import pytest
from delivery_oracle import DeliveryOracle, random_topology
from hypothesis import given
from hypothesis import strategies as st
from scripted_run import Limits, run_spec, scripted_run

from agents.protocol import Slot
from agents.worker.executors.acks import Acker
from agents.worker.executors.bolt import BoltExecutor
from workloads.acks import ACK, ACKED, INIT, source_executors, tracked, tracked_places, untracked_places
from workloads.operators import Batch, Row
from workloads.topology import ACKER, Component, Executor, Topology, ackers

PLACES = [Slot("n1", 0), Slot("n1", 1), Slot("n2", 0), Slot("n3", 2)]
SMALL = Limits(batch_rows=3, window_rows=9, turn_rows=5, batch_bytes=10_000, window_bytes=100_000)
SCRIPTS = st.lists(st.integers(0, 2_000), min_size=50, max_size=150)


def topology_with_ackers(random: Random) -> Topology:
    drawn = random_topology(random)
    return msgspec.structs.replace(drawn, components=(*drawn.components, *ackers(random.randint(1, 3))))


@given(st.randoms(use_true_random=False), st.integers(0, 12), SCRIPTS)
def test_each_source_is_notified_once_of_each_of_its_records_and_nothing_else_changes(
    random: Random, records: int, script: list[int]
) -> None:
    topology = topology_with_ackers(random)
    placed = {executor.name: random.choice(PLACES) for executor in topology.executors}
    with_acks = tracked(topology)
    places = tracked_places(topology, placed)
    assert untracked_places(places) == placed
    oracle = DeliveryOracle(topology, records, [placed[executor.name] for executor in topology.executors])
    if sum(oracle.received(component.id).total() for component in topology.components) > 1_500:
        oracle.records = records = 1
    spec = run_spec(with_acks, [places[executor.name] for executor in with_acks.executors])
    with scripted_run(spec, oracle.operator, SMALL) as run:
        run.run(script, 0)
        bolts = [running for running in run.executors.values() if isinstance(running, BoltExecutor)]
        processed, emitted = Counter[str](), Counter[str]()
        for running in bolts:
            processed[running.executor.component] += running.meter.processed
            emitted[running.executor.component] += running.meter.emitted
            if isinstance(acker := running.bolt, Acker):
                assert msgspec.msgpack.decode(acker.snapshot()) == {}
        for at, source in enumerate(source_executors(topology)):
            assert run.executors[f"{ACKED}[{at}]"].meter.processed == run.executors[source.name].meter.emitted
    oracle.check()
    received = {component.id: oracle.received(component.id).total() for component in topology.components}
    rows = sum(received.values())
    # One tuple per record, and one per row that a bolt gets.
    assert processed[ACKER] == sum(spout.meter.emitted for spout in run.spouts) + rows
    for component in topology.components:
        if component.inputs:
            assert processed[component.id] == received[component.id]
            sent = sum(bag.total() for bag in oracle.emitted(component.id).values())
            assert emitted[component.id] == sent


@given(st.permutations(range(6)), st.integers(0, 6))
def test_an_acker_reports_a_record_at_its_last_id_in_any_order_and_after_a_recovery(
    order: list[int], recovery: int
) -> None:
    tuples: list[tuple[str, Row]] = [
        (INIT, (7, 0b0011, 2)),
        (ACK, (7, 0b0101)),
        (ACK, (7, 0b0110)),
        (INIT, (8, 0b1000, 0)),
        (ACK, (8, 0b1000)),
        (ACK, (9, 0b1000)),
    ]
    acker, found = Acker(), list[Row]()
    for at, number in enumerate(order):
        if at == recovery:
            restored = Acker()
            restored.restore(acker.snapshot())
            acker = restored
        stream, row = tuples[number]
        found += acker.process(Batch("b", stream, [row]))[ACK]
    assert sorted(found) == [(0, 8), (2, 7)]
    assert list(msgspec.msgpack.decode(acker.snapshot())) == [9]


def test_acked_executors_are_placed_with_their_sources() -> None:
    topology = Topology("t", (Component("a", "spout", 2, outputs={}), *ackers(1), Component("b", "spout", outputs={})))
    found = tracked_places(topology, {"a[0]": "x", "a[1]": "y", "__acker[0]": "w", "b[0]": "z"})
    assert [found[Executor(ACKED, at).name] for at in range(3)] == ["x", "y", "z"]


@pytest.mark.parametrize("acks", [True, False])
def test_the_ids_are_fields_of_rows_only_where_records_are_tracked(acks: bool) -> None:
    topology = Topology("t", (Component("a", "spout", outputs={"default": {"word": "str"}}), *ackers(1)))
    schema = ((tracked(topology) if acks else topology).component["a"].outputs or {})["default"]
    assert list(schema) == (["word", "__root", "__edge"] if acks else ["word"])

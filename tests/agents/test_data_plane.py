"""Whole topologies over scripted links: in any interleaving, every row is routed exactly once and all drains."""

from collections import Counter

import pytest
from delivery_oracle import SCHEMA, SIDE, DeliveryOracle
from hypothesis import given
from hypothesis import strategies as st
from scripted_run import Limits, run_spec, scripted_run

from agents.protocol import Slot
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.executor import LatencySampler, mix
from workloads.topology import Component, Input, Topology

PLACES = [Slot("n1", 0), Slot("n1", 1), Slot("n2", 0), Slot("n3", 2)]
GROUPINGS = ("shuffle", "fields", "global", "all", "direct", "local-or-shuffle")
MOST_ROWS = 1_500
"""Approximate limit of the rows that all components of a drawn topology receive together."""


@st.composite
def inputs(draw: st.DrawFn, sources: list[tuple[str, str]]) -> tuple[Input, ...]:
    chosen = draw(st.lists(st.sampled_from(sources), min_size=1, max_size=3, unique=True))
    entries = []
    for component, stream in chosen:
        grouping = draw(st.sampled_from(GROUPINGS))
        fields: tuple[str, ...] = ()
        if grouping == "fields":
            fields = tuple(draw(st.lists(st.sampled_from(sorted(SCHEMA)), min_size=1, max_size=5, unique=True)))
        if grouping == "direct":
            fields = ("to",)
        entries.append(Input(component, grouping, fields, stream))
    return tuple(entries)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    parallelism = st.integers(1, 3)
    components = [
        Component(f"s{at}", "spout", draw(parallelism), outputs={"default": SCHEMA})
        for at in range(draw(st.integers(1, 2)))
    ]
    sources = [(spout.id, "default") for spout in components]
    for at in range(draw(st.integers(1, 4))):
        entries = draw(inputs(sources))
        outputs = {"default": SCHEMA, SIDE: SCHEMA}
        components.append(Component(f"b{at}", "bolt", draw(parallelism), outputs=outputs, inputs=entries))
        sources += [(f"b{at}", "default"), (f"b{at}", SIDE)]
    return Topology("drawn", tuple(components))


@st.composite
def oracles(draw: st.DrawFn) -> DeliveryOracle:
    topology = draw(topologies())
    places = draw(st.lists(st.sampled_from(PLACES), min_size=len(topology.executors), max_size=len(topology.executors)))
    one = DeliveryOracle(topology, 1, places)
    cost = sum(one.received(component.id).total() for component in topology.components)
    return DeliveryOracle(
        topology, min(draw(st.sampled_from([60, 25, 7, 1, 0])), 1 + MOST_ROWS // max(1, cost)), places
    )


@st.composite
def limits(draw: st.DrawFn) -> Limits:
    return Limits(
        batch_rows=draw(st.integers(1, 8)),
        batch_bytes=draw(st.sampled_from([1, 60, 300, 10_000])),
        window_rows=draw(st.integers(1, 20)),
        window_bytes=draw(st.sampled_from([1, 50, 400, 100_000])),
        turn_rows=draw(st.integers(1, 12)),
        stride=draw(st.integers(1, 9)),
    )


SCRIPTS = st.lists(st.integers(0, 2_000), min_size=50, max_size=150)


@given(oracles(), limits(), SCRIPTS, st.integers(0, 2**32))
def test_every_row_arrives_exactly_once_in_order_where_it_belongs_and_all_drains(
    oracle: DeliveryOracle, small: Limits, script: list[int], seed: int
) -> None:
    with scripted_run(run_spec(oracle.topology, oracle.places, seed), oracle.operator, small) as run:
        run.run(script, seed)
    oracle.check()
    for spout in run.spouts:
        share = range(
            spout.executor.index, oracle.records, oracle.topology.component[spout.executor.component].parallelism
        )
        assert spout.position == spout.meter.emitted == len(share)
    processed = Counter()
    for name, running in run.executors.items():
        processed[name.partition("[")[0]] += running.meter.processed
    for component in oracle.topology.components:
        assert processed[component.id] == oracle.received(component.id).total()


@given(oracles(), limits(), SCRIPTS, st.integers(0, 2**32))
def test_latencies_are_recorded_for_exactly_the_rows_that_sampled_records_cause(
    oracle: DeliveryOracle, small: Limits, script: list[int], seed: int
) -> None:
    spec = run_spec(oracle.topology, oracle.places, seed)
    with scripted_run(spec, oracle.operator, small) as run:
        run.run(script, seed)
        sampled = set()
        for number, executor in enumerate(oracle.topology.executors):
            component = oracle.topology.component[executor.component]
            if component.kind == "spout":
                own = LatencySampler(mix(seed ^ mix(number))).sampled(0, oracle.records)
                sampled |= {(record * component.parallelism + executor.index, component.id) for record in own}
    for sink in oracle.sinks:
        expected = sum(
            count for (record, path), count in oracle.received(sink).items() if (record, path.split(">")[0]) in sampled
        )
        bolts = [running for running in run.executors.values() if running.executor.component == sink]
        counted = [bolt.latency.counts.total() for bolt in bolts if isinstance(bolt, BoltExecutor) and bolt.latency]
        assert sum(counted) == expected


def test_a_source_stops_while_its_sink_does_and_continues_afterwards() -> None:
    schema = {"default": SCHEMA}
    topology = Topology(
        "line",
        (
            Component("s0", "spout", outputs=schema),
            Component("b0", "bolt", outputs=schema | {SIDE: SCHEMA}, inputs=(Input("s0"),)),
            Component("b1", "bolt", outputs=schema | {SIDE: SCHEMA}, inputs=(Input("b0"),)),
        ),
    )
    oracle = DeliveryOracle(topology, 1_000, PLACES[:3])
    small = Limits(batch_rows=4, window_rows=6, turn_rows=5, batch_bytes=10_000, window_bytes=100_000)
    with scripted_run(run_spec(topology, oracle.places), oracle.operator, small) as run:
        sink = run.executors["b1[0]"]
        for _ in range(500):
            for at, name in enumerate(run.executors):
                if name != "b1[0]":
                    run.turn(at)
            for a in PLACES[:3]:
                run.age(a, 10**6)
            for ends in list(run.pipes):
                run.transfer(*ends, 1 << 30)
            run.check()
        emitted = run.spouts[0].meter.emitted
        # Two windows, the pending rows of the two senders, and no more: nothing is dropped, nothing piles up.
        assert emitted <= 2 * 6 + 2 * (4 + 5 + 6)
        assert sink.meter.processed == 0
        assert run.spouts[0].meter.blocked_ns > 0
        run.run([], 0)
    oracle.check()


@pytest.mark.parametrize("parallelism", [1, 3])
def test_an_empty_input_drains_at_once(parallelism: int) -> None:
    topology = Topology(
        "empty",
        (
            Component("s0", "spout", parallelism, outputs={"default": SCHEMA}),
            Component("b0", "bolt", parallelism, outputs={"default": SCHEMA}, inputs=(Input("s0", "all"),)),
            Component("__acker", "bolt", 2),
        ),
    )
    oracle = DeliveryOracle(topology, 0, [PLACES[at % 3] for at in range(2 * parallelism + 2)])
    with scripted_run(run_spec(topology, oracle.places), oracle.operator) as run:
        assert run.executors["__acker[0]"].drained
        run.run([], 1)
    oracle.check()

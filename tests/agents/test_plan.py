"""Every worker derives the same numbers and channels from a run's spec, and builds its own part of them."""

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import pytest
from delivery_oracle import SCHEMA, SIDE, DeliveryOracle, ForwardingBolt, RecordSpout
from hypothesis import given
from hypothesis import strategies as st
from scripted_run import Limits, Pipe, run_spec, scripted_run

from agents.protocol import ExecutorSpec, MoveToPlace, RunSpec, Slot
from agents.worker.channels.channel import window
from agents.worker.channels.ends import RemoteIncoming, RemoteOutgoing
from agents.worker.channels.linger import FlushTimer
from agents.worker.task_graph.builder import GraphBuilder, build_registry
from agents.worker.task_graph.plan import RunPlan, hop
from agents.worker.task_graph.registry import TaskRegistry
from inventory.errors import RunError
from workloads.key_groups import OwnerRuns
from workloads.operators import Context, Operator
from workloads.rates import Max
from workloads.topology import Component, Input, Topology

A0, A1, B0, C2 = Slot("a", 0), Slot("a", 1), Slot("b", 0), Slot("c", 2)
OUT = {"default": SCHEMA, SIDE: SCHEMA}

DIAMOND = Topology(
    "diamond",
    (
        Component("s", "spout", 2, outputs={"default": SCHEMA}),
        Component("left", "bolt", 2, outputs=OUT, inputs=(Input("s", "fields", ("record",)),)),
        Component("right", "bolt", 1, outputs=OUT, inputs=(Input("s", "all"),)),
        Component(
            "sink",
            "bolt",
            3,
            outputs=OUT,
            inputs=(Input("left"), Input("left", "global", (), SIDE), Input("right", "local-or-shuffle")),
        ),
        Component("__acker", "bolt", 1),
    ),
)
PLACED = [A0, B0, A0, A1, B0, A0, A1, B0, C2]
FIELDS = DIAMOND.component["s"].outputs


def spec() -> RunSpec:
    return run_spec(DIAMOND, PLACED)


def test_numbers_are_positions() -> None:
    plan = RunPlan(spec())
    assert plan.places == (A0, A1, B0, C2)
    assert [executor.name for executor in plan.executors.values()] == [
        *("s[0]", "s[1]", "left[0]", "left[1]", "right[0]", "sink[0]", "sink[1]", "sink[2]", "__acker[0]")
    ]
    assert plan.streams[:3] == (("s", "default"), ("left", "default"), ("left", SIDE))
    assert plan.schema(2) == SCHEMA


def test_a_grouping_has_channels_to_all_possible_receivers() -> None:
    plan = RunPlan(spec())
    pairs = Counter(
        (plan.executors[c.sender].component, plan.executors[c.receiver].name, plan.streams[c.stream][1])
        for c in plan.channels
    )
    assert pairs == {
        ("s", "left[0]", "default"): 2,
        ("s", "left[1]", "default"): 2,
        ("s", "right[0]", "default"): 2,
        ("left", "sink[0]", "default"): 2,
        ("left", "sink[1]", "default"): 2,
        ("left", "sink[2]", "default"): 2,
        ("left", "sink[0]", SIDE): 2,
        ("right", "sink[0]", "default"): 1,
        ("right", "sink[1]", "default"): 1,
        ("right", "sink[2]", "default"): 1,
    }


def test_hops_are_classified_by_slot_and_node() -> None:
    plan = RunPlan(spec())
    hops = [hop(plan.places[0], plan.place[number]) for number in (2, 3, 4)]
    assert hops == ["intra_worker", "inter_worker", "inter_node"]


def test_peers_share_a_channel_in_either_direction_and_an_idle_worker_has_none() -> None:
    plan = RunPlan(spec())
    peers = {place: {plan.places[at] for at in plan.peers(number)} for number, place in enumerate(plan.places)}
    assert peers == {A0: {A1, B0}, A1: {A0, B0}, B0: {A0, A1}, C2: set()}


PLACES = st.lists(st.sampled_from([A0, A1, B0, C2]), min_size=9, max_size=9)


@given(PLACES)
def test_all_workers_together_build_both_ends_of_every_channel_once(places: list[Slot]) -> None:
    oracle = DeliveryOracle(DIAMOND, 0, places)
    with scripted_run(run_spec(DIAMOND, places), oracle.operator, Limits()) as run:
        planned = [c.id for c in run.plan.channels]
        assert sorted(key for key, _, _ in run.channels()) == sorted(planned)
        remote = [key for key, outgoing, _ in run.channels() if isinstance(outgoing, RemoteOutgoing)]
        incoming = [ends for worker in run.workers.values() for ends in worker.registry.incoming.items()]
        assert sorted(key for key, _ in incoming) == sorted(planned)
        assert sorted(key for key, end in incoming if isinstance(end, RemoteIncoming)) == sorted(remote)
        assert all(places[sender] != places[receiver] for sender, receiver, _ in remote)
        names = [e.executor.name for worker in run.workers.values() for e in worker.registry.executors]
        assert sorted(names) == sorted(executor.name for executor in DIAMOND.executors)
        for number, place in enumerate(run.plan.places):
            ends = {places[at] for key in remote for at in key[:2] if place in (places[key[0]], places[key[1]])}
            assert {run.plan.places[peer] for peer in run.plan.peers(number)} == ends - {place}


def test_a_window_is_the_receivers_queue_divided_among_its_channels() -> None:
    oracle = DeliveryOracle(DIAMOND, 0, PLACED)
    plan = RunPlan(spec())
    for place in plan.places:
        built = assembled(plan, place, oracle.operator)
        for (_, receiver, _), outgoing in built.outgoing.items():
            shared = Counter(channel.receiver for channel in plan.channels)[receiver]
            assert (outgoing._credit_rows, outgoing._credit_bytes) == window(shared)


def assembled(plan: RunPlan, place: Slot, operator: Callable[[str], Operator]) -> TaskRegistry:
    """Return the tasks that one worker builds from a plan."""
    builder = GraphBuilder(plan.places.index(place), lambda _: Pipe(1), FlushTimer(), operator, Max(), {})
    return build_registry(plan, builder)


@pytest.mark.parametrize("change", ["missing", "swapped", "foreign"])
def test_executors_other_than_the_topologys_are_refused(change: str) -> None:
    executors = list(spec().executors)
    if change == "missing":
        executors.pop()
    elif change == "swapped":
        executors[0], executors[1] = executors[1], executors[0]
    else:
        executors[-1] = ExecutorSpec("other", 0, A0)
    with pytest.raises(RunError, match="not those of topology 'diamond'"):
        RunPlan(msgspec.structs.replace(spec(), executors=tuple(executors)))


@pytest.mark.parametrize("runs", [(), ((0, 1023),), ((0, 1000), (2, 24)), ((0, 1000), (1, 25))])
def test_key_groups_without_an_owner_among_the_executors_are_refused(runs: OwnerRuns) -> None:
    with pytest.raises(RunError, match="key groups of left have no complete table of owners"):
        RunPlan(msgspec.structs.replace(spec(), owners={"left": runs}))


def test_executors_on_a_worker_that_the_run_does_not_have_are_refused() -> None:
    with pytest.raises(RunError, match=r"executors are placed on .*none of its workers"):
        RunPlan(msgspec.structs.replace(spec(), workers=(A0, A1, C2)))


def test_workers_are_numbered_as_they_are_listed_and_later_ones_change_no_number() -> None:
    listed = (B0, A0, C2, A1, Slot("z", 0))
    plan = RunPlan(msgspec.structs.replace(spec(), workers=listed))
    assert plan.places == listed
    assert [plan.places[number] for number in plan.worker.values()] == PLACED
    assert plan.peers(4) == set()


def test_after_moves_the_plan_has_the_new_slots() -> None:
    plan = RunPlan(spec())
    new_slot = Slot("z", 0)
    moved = plan.moved([MoveToPlace("left[1]", new_slot), MoveToPlace("s[0]", B0)], (*plan.places, new_slot))
    expected = list(PLACED)
    expected[3], expected[0] = new_slot, B0
    assert list(moved.place.values()) == expected
    assert moved.places == (*plan.places, new_slot)
    assert [c.id for c in moved.channels] == [c.id for c in plan.channels]
    assert plan.place == dict(enumerate(PLACED))


@pytest.mark.parametrize(
    ("move", "why"),
    [
        (MoveToPlace("left[2]", A0), r"no executor left\[2\]"),
        (MoveToPlace("left", A0), "no executor left"),
        (MoveToPlace("left[0]", Slot("z", 0)), "none of its workers"),
    ],
)
def test_a_move_of_an_unknown_executor_or_to_an_unknown_worker_is_refused(move: MoveToPlace, why: str) -> None:
    plan = RunPlan(spec())
    with pytest.raises(RunError, match=why):
        plan.moved([move], plan.places)


def build(topology: Topology, operator: Callable[[str], Operator] | None = None) -> None:
    oracle = DeliveryOracle(topology, 0, [A0] * len(topology.executors))
    assembled(RunPlan(run_spec(topology, oracle.places)), A0, operator or oracle.operator)


def simple(*inputs: Input, outputs: object = FIELDS) -> Topology:
    return Topology("t", (Component("s", "spout", outputs=outputs), Component("b", "bolt", outputs=OUT, inputs=inputs)))


def test_a_stream_can_be_subscribed_to_once() -> None:
    with pytest.raises(RunError, match="b subscribes twice to the same stream of s"):
        build(simple(Input("s"), Input("s", "all")))


@pytest.mark.parametrize("outputs", [None, {}, {"other": SCHEMA}])
def test_a_stream_that_is_not_declared_is_named(outputs: object) -> None:
    with pytest.raises(RunError, match="b subscribes to the stream 'default' of s, which declares"):
        build(simple(Input("s"), outputs=outputs))


def test_an_operator_of_the_wrong_kind_is_refused() -> None:
    oracle = DeliveryOracle(simple(Input("s")), 0, [A0, A0])
    wrong_kinds: Sequence[tuple[str, type[Operator]]] = [("s", ForwardingBolt), ("b", RecordSpout), ("b", Operator)]
    for wrong, kind in wrong_kinds:

        def operator(component: str, wrong: str = wrong, kind: type = kind) -> Operator:
            if component != wrong:
                return oracle.operator(component)
            return kind() if kind is Operator else kind(oracle)

        with pytest.raises(RunError, match=f"{wrong}: {kind.__name__} is no {'Spout' if wrong == 's' else 'Bolt'}"):
            build(oracle.topology, operator)


def test_a_failing_open_names_the_executor() -> None:
    class Closed(ForwardingBolt):
        def open(self, context: Context) -> None:
            raise FileNotFoundError(2, "No such file", "books.txt")

    oracle = DeliveryOracle(simple(Input("s")), 0, [A0, A0])
    with pytest.raises(RunError, match=r"b\[0\] cannot be opened: FileNotFoundError.*books.txt"):
        build(oracle.topology, lambda name: Closed(oracle) if name == "b" else oracle.operator(name))

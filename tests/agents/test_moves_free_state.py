"""Moves free everything that an executor had in its old slot at once, without the garbage collector."""

import gc
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random

import msgspec
import pytest
from delivery_oracle import SCHEMA, SIDE
from exactly_once_oracle import ExactlyOnceOracle
from scripted_run import Limits, ScriptedRun, run_spec, scripted_run

from agents.protocol import Abandon, Cut, MoveToPlace, Passed, Precopy, Prepare, Ready, Slot
from agents.worker.channels.linger import MAX_LINGER_NS
from agents.worker.task_graph import registry
from agents.worker.task_graph.plan import RunPlan
from workloads.apps.wordcount_operators import Count
from workloads.operators import NOTHING, Batch, Context, Emitted, Operator
from workloads.topology import Component, Input, Topology

SLOTS = [Slot("n1", 0), Slot("n1", 1), Slot("n2", 0)]
OUT = {"default": SCHEMA, SIDE: SCHEMA}
LINE = Topology(
    "line",
    (
        Component("s", "spout", 2, outputs={"default": SCHEMA}),
        Component("b", "bolt", 2, outputs=OUT, inputs=(Input("s", "fields", ("record",)),)),
        Component("c", "bolt", 2, outputs=OUT, inputs=(Input("b"), Input("s", "all"))),
    ),
)
WARM_UP, MOVES, PLANS = 18, 60, 300


@contextmanager
def without_collector() -> Iterator[None]:
    """Disable the garbage collector: objects in reference cycles stay."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def next_move(run: ScriptedRun, at: int) -> MoveToPlace:
    """Return the next move: one executor after the other, each to the next slot."""
    executors = LINE.executors
    executor = executors[at % len(executors)]
    place = run.plan.place[executors.index(executor)]
    return MoveToPlace(executor.name, SLOTS[(SLOTS.index(place) + 1) % len(SLOTS)])


def prepare(run: ScriptedRun, barrier: int, moves: Sequence[MoveToPlace]) -> int:
    """Copy state and prepare a barrier on all workers; return the tick of the cut."""
    for place in SLOTS:
        run.command(place, Precopy(epoch=1, barrier=barrier, moves=tuple(moves), workers=tuple(SLOTS), ports={}))
    for _ in range(5):
        run.sweep(Random(barrier), MAX_LINGER_NS)  # noqa: S311 - it must be repeatable
    for place in SLOTS:
        run.command(place, Prepare(epoch=1, barrier=barrier, moves=tuple(moves), workers=tuple(SLOTS)))
    ready = [report for worker in run.workers.values() for report in worker.reports if isinstance(report, Ready)]
    assert [each.refused for each in ready] == [""] * len(SLOTS)
    return max(each.tick for each in ready)


def move_executor(run: ScriptedRun, barrier: int) -> None:
    """Move one executor, while rows flow."""
    tick = prepare(run, barrier, [next_move(run, barrier)])
    for place in SLOTS:
        run.command(place, Cut(epoch=1, barrier=barrier, tick=tick))
    random = Random(barrier)  # noqa: S311 - it must be repeatable
    passed: set[Slot] = set()
    while len(passed) < len(SLOTS):
        assert run.sweep(random, MAX_LINGER_NS)
        passed |= {place for place, worker in run.workers.items() if any(isinstance(r, Passed) for r in worker.reports)}


def abandon_move(run: ScriptedRun, barrier: int) -> None:
    """Prepare a move and abandon it."""
    prepare(run, barrier, [next_move(run, barrier)])
    for place in SLOTS:
        run.command(place, Abandon(epoch=1, barrier=barrier))
    run.sweep(Random(barrier), MAX_LINGER_NS)  # noqa: S311 - it must be repeatable


@pytest.mark.parametrize("play", [move_executor, abandon_move])
def test_nothing_of_an_old_slot_is_left_for_the_garbage_collector(play) -> None:
    oracle = ExactlyOnceOracle(LINE, 10**9, [])
    rate = {"kind": "constant", "tuples_per_s": 1000.0}
    spec = msgspec.structs.replace(run_spec(LINE, [*SLOTS, *SLOTS], rate=rate), workers=tuple(SLOTS))
    with scripted_run(spec, oracle.operator, Limits()) as run, without_collector():
        for barrier in range(1, WARM_UP + MOVES + 1):
            play(run, barrier)
            for worker in run.workers.values():
                worker.reports.clear()
                # Reporting the metrics of departed executors drops the references to them.
                worker.registry.departed.clear()
            if barrier == WARM_UP:
                gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            gc.collect()
            kept = Counter(type(each).__name__ for each in gc.garbage)
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
    assert not kept


def test_plans_after_many_moves_take_no_more_memory_than_the_first() -> None:
    places = [*SLOTS, *SLOTS]
    plan = RunPlan(msgspec.structs.replace(run_spec(LINE, places), workers=tuple(SLOTS)))
    before = 0
    with without_collector():
        for at in range(2 * PLANS):
            if at == PLANS:  # by then the interpreter's free lists are full
                before = sys.getallocatedblocks()
            plan = plan.moved([MoveToPlace("b[0]", SLOTS[at % len(SLOTS)])], tuple(SLOTS))
            assert plan.channels
            assert plan.streams
            assert plan.worker
            assert plan.fan_in
            assert plan.channels_from(0)
            assert plan.topology.number_of
        grown = sys.getallocatedblocks() - before
    # A tuple made from a generator grows the interpreter's free list of tuples: one block per plan and tuple.
    assert grown < PLANS / 2


class ManyKeys(Count):
    """A bolt with many keys."""

    def __init__(self, keys: int) -> None:
        self.keys, self.closed = keys, 0

    def open(self, context: Context) -> None:
        self.counts.update(dict.fromkeys(map(str, range(self.keys)), 1))

    def process(self, batch: Batch) -> Emitted:
        return NOTHING

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(("keys", "most", "ends_early"), [(100, 100, False), (100, 30, False), (50_000, 1, True)])
def test_a_large_state_is_deleted_in_steps_after_its_move(
    monkeypatch: pytest.MonkeyPatch, keys: int, most: int, ends_early: bool
) -> None:
    monkeypatch.setattr(registry, "RELEASED_KEYS", most)
    oracle = ExactlyOnceOracle(LINE, 10**9, [])

    def operator(component: str) -> Operator:
        return ManyKeys(keys) if component == "b" else oracle.operator(component)

    rate = {"kind": "constant", "tuples_per_s": 1000.0}
    spec = msgspec.structs.replace(run_spec(LINE, [*SLOTS, *SLOTS], rate=rate), workers=tuple(SLOTS))
    with scripted_run(spec, operator, Limits()) as run:
        number = next(at for at, executor in run.plan.executors.items() if executor.name == "b[0]")
        worker = run.workers[run.plan.place[number]]
        old = worker.registry.running[number].operator
        assert isinstance(old, ManyKeys)
        move_executor(run, number)
        assert number not in worker.registry.running
        assert worker.tasks.has_more_steps == ends_early
        assert old.closed == (not ends_early)
        if keys == most:
            assert len(old.counts) == keys
        else:
            assert (len(old.counts) == 0) == (not ends_early)
            assert len(old.counts) < keys
        worker.tasks.close()
        assert old.closed == 1

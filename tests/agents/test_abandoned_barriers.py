"""An abandoned barrier with moves changes nothing."""

from collections.abc import Iterator, Sequence
from random import Random

import msgspec
import pytest
from delivery_oracle import SCHEMA, SIDE, DeliveryOracle, OpenOperators, random_topology
from hypothesis import given
from hypothesis import strategies as st
from scripted_run import Limits, ScriptedRun, run_spec, scripted_run

from agents.protocol import Abandon, Cut, Drained, Moved, MoveToPlace, Passed, Prepare, Ready, Slot, Stop
from workloads.topology import Component, Input, Topology

SLOTS = [Slot("n1", 0), Slot("n1", 1), Slot("n2", 0)]
OUT = {"default": SCHEMA, SIDE: SCHEMA}
LINE = Topology(
    "line",
    (
        Component("s", "spout", 2, outputs={"default": SCHEMA}),
        Component("b", "bolt", 2, outputs=OUT, inputs=(Input("s", "fields", ("record",)),)),
        Component("c", "bolt", 2, outputs=OUT, inputs=(Input("b"), Input("s", "all"))),
        Component("__acker", "bolt", 1),
    ),
)


class Counted(OpenOperators, DeliveryOracle):
    """An oracle that counts open operators; that of the executor `broken` cannot be opened."""

    broken = ""

    def cannot_open(self, executor: str) -> bool:
        return executor == self.broken


def connections_of(run: ScriptedRun) -> Iterator[object]:
    """Yield everything that defines the connections between executors, by identity."""
    for place, worker in run.workers.items():
        registry = worker.registry
        yield place, worker.tasks.plan.place
        yield {number: id(running) for number, running in registry.running.items()}
        yield [id(running) for running in registry.executors]
        for ends in (registry.outgoing, registry.incoming, registry._to, registry._from):
            yield {key: id(end) for key, end in ends.items()}
        yield list(registry.retired), list(registry.departed)
        for running in registry.executors:
            yield [id(channel) for channel in running.router.channels]
            yield running.live
        for bolt in registry.bolts:
            # Some may have ended meanwhile.
            yield bolt.inputs.channels <= set(registry.incoming.values())
            yield (len(bolt.inputs._joining), len(bolt.inputs._leaving))


def random_moves(random: Random, topology: Topology, places: Sequence[Slot]) -> tuple[MoveToPlace, ...]:
    """Return random moves of some executors to other workers."""
    chosen = random.sample(list(zip(topology.executors, places, strict=True)), random.randint(1, len(places)))
    targets = {executor.name: random.choice([slot for slot in SLOTS if slot != place]) for executor, place in chosen}
    return tuple(MoveToPlace(name, place) for name, place in targets.items())


def take_ready_reports(run: ScriptedRun) -> dict[Slot, Ready]:
    """Return and remove every worker's `Ready` reports."""
    found = {}
    for place, worker in run.workers.items():
        (found[place],) = [report for report in worker.reports if isinstance(report, Ready)]
        worker.reports[:] = [report for report in worker.reports if not isinstance(report, Ready)]
    return found


@given(st.integers(0, 2**32))
def test_an_abandoned_move_leaves_everything_as_it_was_and_the_rows_go_on(seed: int) -> None:
    random = Random(seed)  # noqa: S311 - it must be repeatable
    topology = random_topology(random)
    places = [random.choice(SLOTS) for _ in topology.executors]
    oracle = Counted(topology, random.choice([0, 5, 30]), places)
    spec = msgspec.structs.replace(run_spec(topology, places, seed), workers=tuple(SLOTS))
    with scripted_run(spec, oracle.operator, Limits()) as run:
        for barrier in range(1, 4):
            for _ in range(random.randint(0, 40)):
                run.act(random.randint(0, 5_000))
            before, open_before = list(connections_of(run)), oracle.open
            moves = random_moves(random, topology, places)
            prepared = random.sample(SLOTS, random.randint(1, len(SLOTS)))
            for place in prepared:
                run.command(place, Prepare(epoch=1, barrier=barrier, moves=moves, workers=tuple(SLOTS)))
                for _ in range(random.randint(0, 10)):
                    run.act(random.randint(0, 5_000))
            for place in random.sample(SLOTS, len(SLOTS)):
                run.command(place, Abandon(epoch=1, barrier=barrier))
                for _ in range(random.randint(0, 10)):
                    run.act(random.randint(0, 5_000))
            assert list(connections_of(run)) == before
            assert oracle.open == open_before
        run.run([], seed)
    oracle.check()


def line(records: int, places: Sequence[Slot] = (*SLOTS, *SLOTS, SLOTS[0])) -> Counted:
    return Counted(LINE, records, list(places))


def test_a_worker_on_which_an_operator_cannot_be_opened_refuses_and_is_as_it_was() -> None:
    oracle = line(20)
    with scripted_run(run_spec(LINE, oracle.places), oracle.operator) as run:
        before, open_before = list(connections_of(run)), oracle.open
        oracle.broken = "c[1]"
        targets = {"b[0]": SLOTS[0], "c[0]": SLOTS[0], "c[1]": SLOTS[0]}
        moves = tuple(MoveToPlace(name, place) for name, place in targets.items())
        for place in SLOTS:
            run.command(place, Prepare(epoch=1, barrier=1, moves=moves, workers=tuple(SLOTS)))
        refused = {place: ready.refused for place, ready in take_ready_reports(run).items()}
        assert "c[1] cannot be opened: FileNotFoundError" in refused.pop(SLOTS[0])
        assert set(refused.values()) == {""}
        for place in SLOTS:
            run.command(place, Abandon(epoch=1, barrier=1))
        assert list(connections_of(run)) == before
        assert oracle.open == open_before
        run.run([], 0)
    oracle.check()


def test_a_worker_whose_executors_are_all_idle_takes_part_in_barriers_until_the_stop() -> None:
    alone = Slot("n3", 0)
    oracle = line(20, (*SLOTS, *SLOTS, alone))
    with scripted_run(run_spec(LINE, oracle.places), oracle.operator) as run:
        for place in run.workers:
            run.command(place, Prepare(epoch=1, barrier=1))
        ready = take_ready_reports(run).values()
        assert {report.refused for report in ready} == {""}
        for place in run.workers:
            run.command(place, Cut(epoch=1, barrier=1, tick=max(report.tick for report in ready)))
        run.run([], 0)
        assert [type(report) for report in run.workers[alone].reports[-1:]] == [Passed]
        run.command(alone, Stop(epoch=1))
        assert [type(report) for report in run.workers[alone].reports[-1:]] == [Drained]
    oracle.check()


@pytest.mark.parametrize(
    ("moves", "why"),
    [
        ((MoveToPlace("nobody[0]", SLOTS[1]),), r"there is no executor nobody[0]"),
        ((MoveToPlace("b[0]", Slot("n9", 0)),), "none of its workers"),
    ],
)
def test_moves_of_unknown_executors_or_to_unknown_workers_are_refused_by_all(
    moves: tuple[MoveToPlace, ...], why: str
) -> None:
    oracle = line(20)
    with scripted_run(run_spec(LINE, oracle.places), oracle.operator) as run:
        for place in SLOTS:
            run.command(place, Prepare(epoch=1, barrier=1, moves=moves, workers=tuple(SLOTS)))
        assert all(why in ready.refused for ready in take_ready_reports(run).values())
        run.run([], 0)
    oracle.check()


def test_a_second_barrier_is_refused_while_one_is_in_progress() -> None:
    oracle = line(20)
    with scripted_run(run_spec(LINE, oracle.places), oracle.operator) as run:
        for barrier, why in ((1, ""), (2, "barrier 1 is not over yet")):
            for place in SLOTS:
                run.command(place, Prepare(epoch=1, barrier=barrier))
            assert {ready.refused for ready in take_ready_reports(run).values()} == {why}
        for place in SLOTS:
            # A command about a different barrier has no effect.
            run.command(place, Abandon(epoch=1, barrier=2))
            run.command(place, Cut(epoch=1, barrier=2, tick=1))
            run.command(place, Abandon(epoch=1, barrier=1))
            run.command(place, Cut(epoch=1, barrier=1, tick=1))
        run.run([], 0)
    oracle.check()


def test_where_an_executor_has_ended_moves_are_refused_and_barriers_that_store_are_not() -> None:
    oracle = line(20)
    with scripted_run(run_spec(LINE, oracle.places), oracle.operator) as run:
        while not any(spout.ending for spout in run.spouts):
            run.sweep(Random(1))  # noqa: S311 - it must be repeatable
        run.command(SLOTS[0], Prepare(epoch=1, barrier=1, moves=(MoveToPlace("b[1]", SLOTS[1]),), workers=tuple(SLOTS)))
        ended = [place for place, worker in run.workers.items() if any(s.ending for s in worker.registry.spouts)]
        for place in ended:
            if place != SLOTS[0]:
                run.command(
                    place, Prepare(epoch=1, barrier=1, moves=(MoveToPlace("b[1]", SLOTS[1]),), workers=tuple(SLOTS))
                )
            (ready,) = [report for report in run.workers[place].reports if isinstance(report, Ready)]
            assert "has ended" in ready.refused
            run.command(place, Prepare(epoch=1, barrier=2, store=True))
            assert not [r for r in run.workers[place].reports if isinstance(r, Ready)][-1].refused
            run.command(place, Abandon(epoch=1, barrier=2))
        run.command(SLOTS[0], Abandon(epoch=1, barrier=1))
        run.run([], 0)
    oracle.check()


def test_an_executor_without_inputs_neither_prevents_moves_nor_stays_behind() -> None:
    oracle = line(60)
    with scripted_run(run_spec(LINE, oracle.places), oracle.operator) as run:
        moves = (MoveToPlace("__acker[0]", SLOTS[2]), MoveToPlace("b[0]", SLOTS[0]))
        for place in SLOTS:
            run.command(place, Prepare(epoch=1, barrier=1, moves=moves, workers=tuple(SLOTS)))
        ready = take_ready_reports(run)
        assert {each.refused for each in ready.values()} == {""}
        for place in SLOTS:
            run.command(place, Cut(epoch=1, barrier=1, tick=max(each.tick for each in ready.values())))
        reports = [report for worker in run.workers.values() for report in worker.reports]
        random = Random(4)  # noqa: S311 - it must be repeatable
        while sum(isinstance(report, Passed) for report in reports) < 3:
            assert run.sweep(random) or run.sweep(random, 10**9)
            reports = [report for worker in run.workers.values() for report in worker.reports]
        assert sorted(report.executor for report in reports if isinstance(report, Moved)) == ["__acker[0]", "b[0]"]
        assert "__acker[0]" in {running.executor.name for running in run.workers[SLOTS[2]].registry.executors}
        run.run([], 0)
    oracle.check()


def test_an_arriving_operator_is_created_beside_the_running_one_and_closed_with_its_worker() -> None:
    oracle = line(20)
    with scripted_run(run_spec(LINE, oracle.places), oracle.operator) as run:
        before = oracle.open
        run.command(SLOTS[0], Prepare(epoch=1, barrier=1, moves=(MoveToPlace("b[0]", SLOTS[0]),), workers=tuple(SLOTS)))
        assert oracle.open == before + 1
        assert "b[0]" not in {running.executor.name for running in run.workers[SLOTS[0]].registry.executors}
        for worker in run.workers.values():
            worker.tasks.close()
        assert oracle.open == 0

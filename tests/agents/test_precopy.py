"""State copied before a move: it is exact at the barrier whatever happens, and only a small rest is left then."""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any
from unittest import mock

import msgspec
import pytest
from delivery_oracle import OpenOperators, random_topology
from exactly_once_oracle import ExactlyOnceOracle
from hypothesis import given
from hypothesis import strategies as st
from scripted_run import Limits, ScriptedRun, run_spec, scripted_run

from agents.protocol import Abandon, Cut, Message, Moved, MoveToPlace, Passed, Precopied, Precopy, Prepare, Ready, Slot
from agents.worker.channels.linger import MAX_LINGER_NS
from agents.worker.executors.executor import OperatorError
from agents.worker.task_graph import state_copies
from agents.worker.task_graph.interfaces import AnswerRows
from agents.worker.task_graph.state_copies import ArrivingState, LeavingState
from agents.worker.task_graph.state_transfer import HandedOver, StateTransfer
from agents.worker.wire import frame
from inventory.errors import RunError
from workloads.apps.wordcount_operators import Count, CountCombined
from workloads.keyed_state import KeyedState, Table
from workloads.operator_state import OperatorState
from workloads.operators import Batch, Bolt

SLOTS = (Slot("n1", 0), Slot("n1", 1), Slot("n2", 0))
MS = 1_000_000


class Counted(OpenOperators, ExactlyOnceOracle):
    """An oracle that counts open operators, and lets some fail to open after the start."""

    random: Random | None = None

    def cannot_open(self, executor: str) -> bool:
        return self.random is not None and self.random.random() < 0.05


def limits(random: Random) -> Limits:
    """Return limits with pieces of one, some or all keys, and with rounds that always or never end by their size."""
    return Limits(piece_bytes=random.choice([40, 400, 100_000]), round_bytes=random.choice([0, 400, 100_000]))


def parts_of(run: ScriptedRun) -> list[AnswerRows]:
    files = [file for worker in run.workers.values() for file in worker.store.files.values()]
    return [file for file in files if isinstance(file, AnswerRows)]


def reports(run: ScriptedRun, kind: type[Message]) -> Iterator[Message]:
    """Yield and remove all reports of this kind."""
    for worker in run.workers.values():
        yield from [report for report in worker.reports if isinstance(report, kind)]
        worker.reports[:] = [report for report in worker.reports if not isinstance(report, kind)]


def command_all(run: ScriptedRun, random: Random, command: Message) -> None:
    """Send a command to workers in random order, with random steps of the run in between."""
    for place in random.sample(SLOTS, len(SLOTS)):
        run.command(place, command)
        for _ in range(random.choice([0, 3, 20])):
            run.act(random.randint(0, 5_000))


def some_moves(run: ScriptedRun, random: Random) -> tuple[MoveToPlace, ...]:
    placed = list(zip(run.plan.executors.values(), run.plan.place.values(), strict=True))
    chosen = random.sample(placed, random.randint(1, len(placed)))
    return tuple(
        MoveToPlace(executor.name, random.choice([slot for slot in SLOTS if slot != place]))
        for executor, place in chosen
    )


def attempt(run: ScriptedRun, random: Random, barrier: int) -> Counter[str]:
    """Copy state of some executors for some time, then move or abandon them; return counts of what happened."""
    moves = some_moves(run, random)
    command_all(run, random, Precopy(epoch=1, barrier=barrier, moves=moves, workers=SLOTS, ports={}))
    for _ in range(random.choice([0, 50, 400])):
        run.act(random.randint(0, 5_000))
    copied = len(list(reports(run, Precopied)))
    tick = None
    if random.random() < 0.8:
        command_all(run, random, Prepare(epoch=1, barrier=barrier, moves=moves, workers=SLOTS))
        ready = list(reports(run, Ready))
        if not any(report.refused for report in ready):
            tick = max(report.tick for report in ready)
    if tick is None or random.random() < 0.2:
        command_all(run, random, Abandon(epoch=1, barrier=barrier))
        return Counter({"abandoned": 1})
    command_all(run, random, Cut(epoch=1, barrier=barrier, tick=tick))
    passed = len(list(reports(run, Passed)))
    while passed < len(SLOTS):
        assert run.sweep(random, MAX_LINGER_NS)
        passed += len(list(reports(run, Passed)))
    assert {report.executor for report in reports(run, Moved)} == {move.executor for move in moves}
    return Counter({"moved": len(moves), "copied": copied})


def test_rows_of_all_executors_are_exact_whenever_copies_begin_and_end_and_are_abandoned() -> None:
    happened: Counter[str] = Counter()
    restore = StateTransfer.restore

    def restored(transfer: StateTransfer, running, received: HandedOver) -> tuple[int, int]:
        happened["rest" if received.is_rest else "whole"] += 1
        return restore(transfer, running, received)

    @given(st.integers(0, 2**32))
    def examples(seed: int) -> None:
        random = Random(seed)  # noqa: S311 - it must be repeatable
        topology = random_topology(random)
        places = [random.choice(SLOTS) for _ in topology.executors]
        oracle = Counted(topology, random.choice([60, 200]), places, tick_every=random.choice([0, 0, 3]))
        spec = msgspec.structs.replace(run_spec(topology, places, seed), workers=SLOTS)
        with scripted_run(spec, oracle.operator, limits(random)) as run:
            oracle.random = random
            for barrier in range(1, 6):
                for _ in range(random.randint(0, 60)):
                    run.act(random.randint(0, 5_000))
                happened.update(attempt(run, random, barrier))
                assert oracle.open == len(topology.executors)
            run.run([], seed)
            for worker in run.workers.values():
                assert not worker.tasks._transfer.is_leaving
                assert not worker.tasks._transfer.is_arriving
            oracle.check_answer(parts_of(run))

    with mock.patch.object(StateTransfer, "restore", restored):
        examples()
    assert all(happened[kind] > 10 for kind in ("abandoned", "moved", "copied", "rest", "whole")), happened


class Large(Bolt):
    """A value of 100 bytes for every key, of which each row changes one."""

    values = KeyedState(bytes)

    def __init__(self, keys: int) -> None:
        self.values.update(dict.fromkeys(range(keys), bytes(100)))
        self.rows = 0

    def change(self, rows: int) -> None:
        for _ in range(rows):
            self.rows += 1
            key = self.rows * 7919 % len(self.values)
            self.values[key] = self.rows.to_bytes(100, "big")


class Growing(Large):
    """Keys are added and deleted meanwhile."""

    def change(self, rows: int) -> None:
        super().change(rows)
        if rows:
            self.values[len(self.values)] = bytes(100)
            del self.values[self.rows % len(self.values)]


def copied(old: Large, new: Large, rows: int) -> tuple[list[int], int]:
    """Copy state, with this many rows processed during each piece; return the sizes of the pieces and of the rest."""
    leaving, arriving = LeavingState(OperatorState(old), 0), ArrivingState("b[0]", OperatorState(new), 1, 0)
    sizes: list[int] = []
    while True:
        state, ends_round = leaving.piece(0)
        sizes.append(len(state))
        old.change(rows)
        for received in frame.FrameReader(1).feed(b"".join(frame.copy(1, 0, 1, state, ends_round))):
            arriving.take(received)
        if ends_round and arriving.ends_copy(len(sizes) * MS):
            rest = leaving.rests()[0]
            OperatorState(new).put(rest)
            return sizes, len(rest)


@pytest.mark.parametrize(("keys", "rows"), [(10_000, 0), (10_000, 1), (10_000, 2), (100_000, 2), (1, 1), (0, 0)])
def test_pieces_and_the_rest_do_not_grow_with_the_state(keys: int, rows: int) -> None:
    with mock.patch.multiple(state_copies, PIECE_BYTES=10_000, SMALL_ROUND_BYTES=50_000):
        old, new = Large(keys), Large(keys)
        sizes, rest = copied(old, new, rows)
    assert new.values == old.values
    assert max(sizes) < 20_000
    assert keys * 100 <= sum(sizes) < keys * 115 * (1 + rows / 50) + 50_000
    assert rest < 50_000
    assert type(old.values) is Table


@pytest.mark.parametrize(("keys", "rows"), [(10_000, 1), (10_000, 2), (100, 2), (2, 1)])
def test_keys_that_come_and_go_meanwhile_are_copied_and_deleted(keys: int, rows: int) -> None:
    with mock.patch.multiple(state_copies, PIECE_BYTES=10_000, SMALL_ROUND_BYTES=50_000):
        old, new = Growing(keys), Growing(0)
        _, rest = copied(old, new, rows)
    assert new.values == old.values
    assert rest < 50_000


@pytest.mark.parametrize("rows", [100, 1_000])
def test_rounds_end_when_as_much_changes_as_is_copied(rows: int) -> None:
    with mock.patch.multiple(state_copies, PIECE_BYTES=10_000, SMALL_ROUND_BYTES=50_000):
        old, new = Large(10_000), Large(10_000)
        sizes, _ = copied(old, new, rows)
    assert new.values == old.values
    assert sum(sizes) < 2.5 * 110 * 10_000


def piece(nbytes: int) -> bytes:
    """Return the state of one key with a value of so many bytes."""
    large = Large(0)
    large.values[0] = bytes(nbytes)
    return OperatorState(large).part([0])


def test_the_time_of_the_rest_is_predicted_from_the_last_two_rounds() -> None:
    began_ms, new = 7, Large(0)
    arriving = ArrivingState("b[0]", OperatorState(new), 1, began_ms * MS)
    arriving.restore(piece(4_000_000))
    assert not arriving.ends_copy((began_ms + 400) * MS)
    assert arriving.predicted_ns is None
    # A fortieth has changed in 400 ms, and as much of that in the next 10 ms, which is copied in 0.25 ms.
    arriving.restore(piece(100_000))
    assert arriving.ends_copy((began_ms + 410) * MS)
    assert arriving.predicted_ns == 0.25 * MS


def test_after_a_single_round_the_rest_is_predicted_to_take_as_long() -> None:
    new = Large(0)
    arriving = ArrivingState("b[0]", OperatorState(new), 1, 0)
    arriving.restore(piece(500_000))
    assert arriving.ends_copy(40 * MS)
    assert arriving.predicted_ns == 40 * MS


@given(
    st.sampled_from([Count, CountCombined]),
    st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1), max_size=20),
    st.integers(0, 2**32),
)
def test_counts_of_words_are_copied_whenever_rows_and_pieces_come(
    kind: type[Count], batches: list[list[str]], seed: int
) -> None:
    random = Random(seed)  # noqa: S311 - it must be repeatable
    old, new, control = kind(), kind(), kind()
    begin, end = sorted((random.randint(0, len(batches)), random.randint(0, len(batches))))
    changed: set[str] = set()
    left: list[Any] = []
    for at, words in enumerate([*batches, []]):
        if at == begin:
            OperatorState(old).track(changed)
            left = OperatorState(old).all_keys()
        if begin <= at < end and random.random() < 0.7:
            if not left:
                left = list(changed)
                changed.clear()
            OperatorState(new).put(OperatorState(old).part([left.pop() for _ in range(min(2, len(left)))]))
        if at == end:
            OperatorState(old).track(None)
            OperatorState(new).put(OperatorState(old).part(changed.union(left)))
            old = new
        rows = [(word,) if kind is Count else (word, 2) for word in words]
        for count in (old, control):
            count.process(Batch("split", "default", rows))
    assert dict(old.answer()) == dict(control.answer())


class Wrong(Large):
    """A bolt with a value that cannot be encoded, and one that takes only text."""

    others = KeyedState(str)


def test_state_that_cannot_be_copied_is_an_error_that_names_it() -> None:
    old = Large(1)
    old.values[0] = object()  # type: ignore[assignment]
    with pytest.raises(RunError, match=r"state 'values', key 0: Encoding objects of type object is unsupported"):
        LeavingState(OperatorState(old), 0).piece(0)
    wrong = Wrong(1)
    wrong.others["a"] = 5  # type: ignore[assignment]
    (received,) = frame.FrameReader(1).feed(b"".join(frame.copy(1, 0, 1, OperatorState(wrong).part(["a"]), False)))
    with pytest.raises(
        OperatorError, match=r"b\[0\]: state 'others' has other values than it declares: Expected `str`"
    ):
        ArrivingState("b[0]", OperatorState(Wrong(1)), 0, 0).take(received)

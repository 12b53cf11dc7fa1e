"""Rescaled sources: all stop after the same record, and any number of others continue there."""

from collections.abc import Sequence
from random import Random

import pytest
from executor_harness import Downstream
from hypothesis import given
from hypothesis import strategies as st
from spouts import BarrierRecorder, RecordedTimes, describe_output, spout_of

from agents.worker.executors.executor import Snapshot
from inventory.errors import RunError
from workloads.operators import STEP_NS, Row, Spout
from workloads.rates import Constant, Max, Rate, Replay
from workloads.scaling import all_records

RECORDS = 60
STEPS = st.lists(st.sampled_from([0, 1, STEP_NS, 25 * STEP_NS]), min_size=RECORDS, max_size=RECORDS)


class Share(Spout):
    """Emits the numbers of its share of the records."""

    def __init__(self, index: int, of: int, tick_ns: int, times: Sequence[int] | None) -> None:
        self._own = range(index, RECORDS, of)
        self._position, self.tick_ns = 0, tick_ns
        if times is not None:
            self.recorded = True  # type: ignore[misc]
            self.times = RecordedTimes(times[index::of])

    def next_batch(self, limit: int) -> Sequence[Row]:
        rows = [(record,) for record in self._own[self._position : self._position + limit]]
        self._position += len(rows)
        return rows

    def snapshot(self) -> bytes:
        return str(self._position).encode()

    def seek(self, position: int) -> None:
        self._position = position


class Sources:
    """Some sources of the same input, each with what it has emitted."""

    def __init__(self, of: int, rate: Rate, tick_ns: int, times: Sequence[int] | None) -> None:
        self.downstream = [Downstream() for _ in range(of)]
        spouts = [Share(index, of, tick_ns, times) for index in range(of)]
        self.recorders = [
            BarrierRecorder(spout_of(s, rate, self.downstream[at], at, of)) for at, s in enumerate(spouts)
        ]
        self.running = [each.running for each in self.recorders]

    def work(self, random: Random, now: int, step: int) -> int:
        """Run turns in random order until nothing is due any more; return the time then."""
        for _ in range(5000):
            for each in random.sample(self.recorders, len(self.recorders)):
                each.run(random.randint(0, 2), now)
            now += step
            if all(running.ending or running.next_ns is None for running in self.running):
                return now
        raise AssertionError("stuck")

    def describe_output(self) -> list[list[int | str]]:
        for downstream in self.downstream:
            downstream.outgoing.flush()
        return [describe_output(downstream.arrived) for downstream in self.downstream]


@given(
    before=st.integers(1, 5),
    after=st.integers(1, 5),
    kind=st.sampled_from(["max", "constant", "recorded", "replay"]),
    gaps=STEPS,
    tick_steps=st.sampled_from([0, 1, 3, 10, 40]),
    until_steps=st.integers(0, 150),
    seed=st.integers(0, 2**32),
)
def test_any_number_of_sources_emits_each_record_once_between_its_ticks(
    before: int, after: int, kind: str, gaps: list[int], tick_steps: int, until_steps: int, seed: int
) -> None:
    random = Random(seed)  # noqa: S311 - repeatable
    tick_ns = tick_steps * STEP_NS
    recorded = [sum(gaps[: at + 1]) for at in range(RECORDS)] if kind in ("recorded", "replay") else None
    times = recorded or [record * STEP_NS for record in range(RECORDS)]
    rate: Rate = {"max": Max(), "replay": Replay(2.0)}.get(kind, Constant(1e9 / STEP_NS))
    first = Sources(before, rate, tick_ns, recorded)
    now = 0
    while now < until_steps * STEP_NS and kind != "max":
        for each in random.sample(first.recorders, before):
            each.run(random.randint(0, 2), now)
        now += random.choice([STEP_NS // 3, STEP_NS, 5 * STEP_NS])
    for each in first.recorders if kind == "max" else ():
        each.running.until = random.randint(0, RECORDS // before - 1)  # else one turn emits all
        each.run(random.randint(0, 9), now)
        each.running.until = None
    if any(running.exhausted or running.ending for running in first.running):
        return
    tick, records = (max(getattr(running, name) for running in first.running) for name in ("next_tick", "records"))
    for running in first.running:
        running.hold(running.next_tick, halt=True)
        assert running.next_ns is None
    for running in first.running:
        running.cut(1, tick, records)
    now = first.work(random, now, STEP_NS)
    snapshots = [snapshot for each in first.recorders for _, snapshot in each.passed]
    assert len(snapshots) == before
    at = all_records([snapshot.position for snapshot in snapshots])
    assert records <= at < RECORDS or (at == RECORDS == records)
    assert {snapshot.next_tick for snapshot in snapshots} == {tick} or at == RECORDS

    second = Sources(after, rate, tick_ns, recorded)
    for index, running in enumerate(second.running):
        running.seek(at, tick, snapshots[index].worked.emitted if index < before else 0)
    second.work(random, now, 10 * STEP_NS)
    emitted = first.describe_output() + second.describe_output()
    assert sorted(record for part in emitted for record in part if isinstance(record, int)) == list(range(RECORDS))
    for number, part in enumerate(emitted):
        last = 0 if number < before else tick - 1
        for entry in part:
            if isinstance(entry, int):
                assert not tick_ns or times[entry] // tick_ns == last
            elif entry.startswith("tick"):
                assert int(entry[5:]) == last + 1
                last += 1
    # One tick follows the last record, in one stream at least.
    ticks = {entry for part in emitted for entry in part if str(entry).startswith("tick")}
    assert len(ticks) == (times[-1] // tick_ns + 1 if tick_ns else 0)
    totals = [Snapshot.read(b"".join(running.snapshot().pieces())).worked.emitted for running in second.running]
    removed = [snapshot.worked.emitted for snapshot in snapshots[after:]]
    assert sum(totals) + sum(removed) == RECORDS


def test_two_sources_at_5_and_3_records_stop_after_9_and_three_continue() -> None:
    before = Sources(2, Max(), 0, None)
    for running, position in zip(before.running, (5, 3), strict=True):
        running.until = position
        running.turn(1)
        running.until = None
        running.hold(1, halt=True)
    assert [running.records for running in before.running] == [9, 6]
    for running in before.running:
        running.cut(1, 1, 9)
    before.work(Random(0), 1, 1)  # noqa: S311 - repeatable
    assert before.describe_output() == [[0, 2, 4, 6, 8, "barrier 1"], [1, 3, 5, 7, "barrier 1"]]
    after = Sources(3, Max(), 0, None)
    for running in after.running:
        running.seek(9, 1, 0)
        running.turn(1)
    assert [running.position for running in after.running] == [RECORDS // 3] * 3
    assert [part[0] for part in after.describe_output()] == [9, 10, 11]


def test_tuples_due_at_a_source_continue_from_its_emitted_ones() -> None:
    sources = Sources(3, Constant(1e9 / STEP_NS), 0, None)
    for running, emitted in zip(sources.running, (20, 10, 0), strict=True):
        running.seek(30, 1, emitted)
        running.note_due(44 * STEP_NS)
    # Of the 45 records due, five each are due after the 30 that the two previous sources have emitted.
    assert [running.meter.due for running in sources.running] == [25, 15, 5]


def test_a_source_that_cannot_seek_is_an_error() -> None:
    class Plain(Spout):
        pass

    downstream = Downstream()
    with pytest.raises(RunError, match=r"s\[0\] cannot continue at its record 3: its spout has no seek\(\)"):
        spout_of(Plain(), Max(), downstream, 0, 2).seek(5, 1, 0)

"""Latencies are exact on a scripted clock: from a record's due time to the end of its processing by the sink."""

from collections import Counter
from types import SimpleNamespace
from unittest import mock

import pytest
from executor_harness import CountingSpout
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_run import Limits, ScriptedRun, run_spec, scripted_run

from agents.protocol import Slot
from agents.worker.executors import bolt as bolt_module
from agents.worker.executors import executor as executor_module
from agents.worker.executors import spout as spout_module
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.executor import bucket, percentile
from inventory.times import NS
from workloads.operators import NOTHING, Batch, Bolt, Emitted, Operator
from workloads.topology import Component, Input, Topology

MS = NS // 1000
SCHEMA = {"number": "int"}
TOPOLOGY = Topology(
    "delays",
    (
        Component("s", "spout", outputs={"default": SCHEMA}),
        Component("r", "bolt", outputs={"default": SCHEMA}, inputs=(Input("s"),)),
        Component("k", "bolt", inputs=(Input("r"),)),
    ),
)
PLACES = [Slot("n1", 0), Slot("n2", 0), Slot("n1", 0)]
WIDE = {"batch_rows": 64, "batch_bytes": 1 << 20, "window_rows": 1 << 16, "window_bytes": 1 << 30, "turn_rows": 64}


class Slow(Bolt):
    """Advances the clock by a scripted delay per row, and records when each row was done."""

    def __init__(self, delays_ns: list[int]) -> None:
        self.delays_ns = delays_ns
        self.run: ScriptedRun | None = None
        self.done: dict[int, int] = {}

    def process(self, batch: Batch) -> Emitted:
        assert self.run is not None
        numbers = [number for (number,) in batch.rows]
        for number in numbers:
            self.run.now_ns += self.delays_ns[number % len(self.delays_ns)]
        self.done |= dict.fromkeys(numbers, self.run.now_ns)
        return NOTHING


class Pass(Bolt):
    def process(self, batch: Batch) -> Emitted:
        return {"default": batch.rows}


def latencies(delays_ns: list[int], records: int, per_s: int, stride: int) -> tuple[Counter[int], dict[int, int]]:
    """Return the sink's histogram, and the true latency of every record, in ns."""
    slow = Slow(delays_ns)
    operators: dict[str, Operator] = {"s": CountingSpout(records), "r": Pass(), "k": slow}
    spec = run_spec(TOPOLOGY, PLACES, rate={"kind": "constant", "tuples_per_s": float(per_s)})
    with (
        pytest.MonkeyPatch.context() as patch,
        mock.patch.object(executor_module, "SAMPLES_PER_S", per_s // stride),
        scripted_run(spec, operators.__getitem__, Limits(**WIDE)) as run,
    ):
        slow.run = run
        clock = SimpleNamespace(monotonic_ns=lambda: run.now_ns, thread_time_ns=lambda: 0)
        for module in (bolt_module, spout_module):
            patch.setattr(module, "time", clock)
        while not run.drained:
            for place in spec.workers:
                run.age(place, MS)
            for at in range(len(PLACES)):
                run.turn(at)
            for ends in list(run.pipes):
                run.transfer(*ends, 1 << 30)
        (sink,) = (r for r in run.executors.values() if isinstance(r, BoltExecutor) and r.latency is not None)
        assert sink.latency is not None
        truth = {number: done - number * NS // per_s for number, done in slow.done.items()}
        return sink.latency.counts.copy(), truth


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.sampled_from([0, 17, 40_000, 2 * MS, 9 * MS, 60 * MS]), min_size=1, max_size=9), st.sampled_from([1, 5])
)
def test_the_histogram_holds_the_latency_of_each_sampled_record_and_nothing_else(
    delays: list[int], stride: int
) -> None:
    records = 300
    counts, truth = latencies(delays, records, 500, stride)
    assert len(truth) == records
    true = Counter(bucket(value) for value in truth.values())
    if stride == 1:
        assert counts == true
    else:
        assert not counts - true
        assert abs(counts.total() - records // stride) <= 1


def test_a_stall_is_in_the_latency_of_all_records_that_are_due_during_it() -> None:
    per_s, seconds, stall_s = 200, 10, 2
    delays = [0] * (per_s * seconds)
    delays[3 * per_s] = stall_s * NS
    counts, truth = latencies(delays, per_s * seconds, per_s, 1)
    late = sum(count for value, count in counts.items() if value > NS)
    # Records due in the first second of the stall, and the few in transit, wait for more than one second.
    assert late == pytest.approx(per_s * (stall_s - 1), abs=per_s / 20)
    assert late == sum(value > NS for value in truth.values())
    measured = percentile(sorted(counts.items()), 0.99)
    assert measured == bucket(sorted(truth.values())[round(0.99 * len(truth)) - 1])
    assert measured is not None
    assert measured > 1.5 * NS

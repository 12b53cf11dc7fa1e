"""Runs with recoveries: counters of bolts in the next epoch, and completeness of metrics."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from simulated_runs import MID, FakeNodes, run_coordinator

from agents.collected_traces import collect
from agents.protocol import Progress, Start, Work
from agents.trace import TraceWriter
from analysis.measure.run_metrics import measure
from analysis.records.file_types import Recovery
from campaign.results.suspect_runs import doubts_from_recoveries, why_incomplete
from controller.coordinator.checkpoint_loop import ControlSettings
from inventory.times import NS

START, SECONDS = 100 * NS, 10
EARLY = Recovery(at_s=3.0, took_s=0.5)
"""Recovery 1 s after the start of the interval; the sources start 2 s before the interval."""


def test_the_next_start_has_the_highest_reported_counters_of_bolts() -> None:
    def report(epoch: int, emitted: int, processed: int) -> Progress:
        work = {"mid[0]": Work(emitted, processed, queued=0, busy_ns=0, blocked_ns=0)}
        return Progress(epoch=epoch, slot=1, at_ns=0, emitted=0, sunk=0, executors=work)

    async def kill(nodes: FakeNodes) -> None:
        await asyncio.sleep(3)
        nodes.coordinator.handle_report("n1", report(1, 70, 140))
        nodes.kill_worker(MID)
        await asyncio.sleep(1)
        # Restored, but not yet at its former counters.
        nodes.coordinator.handle_report("n1", report(2, 60, 120))
        nodes.kill_worker(MID)

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 6, kill)
    started = [dict(message.spec.worked) for message in nodes.messages(Start, "n1")]
    assert started == [{}, {"mid[0]": (70, 140)}, {"mid[0]": (70, 140)}]


def incomplete_reason(
    folder: Path,
    recoveries: Sequence[Recovery] = (EARLY,),
    lost: Sequence[str] = (),
    emitted: int = 100,
    due: int | None = 100,
    delivered: Sequence[int] = (100,) * SECONDS,
) -> str | None:
    """Return why the metrics of a run of 10 s are incomplete; rows are per second, and the sink processes 100."""
    writer = TraceWriter(folder, "r", "n1", 0)
    for at, kind in ((0, "measure_start"), (SECONDS, "measure_end")):
        writer.add("event", START + at * NS, kind, "", None, None)
    for second in range(SECONDS + 3):
        at = START + second * NS
        level = None if due is None else due * second
        writer.add("throughput", at, "src[0]", "src", "spout", emitted, 0, 0, level, 0, None)
        writer.add("throughput", at, "snk[0]", "snk", "sink", 0, 100, None, None, None, None)
        sent = delivered[second - 1] if 0 < second <= SECONDS else 9_999
        writer.add("channel", at, "src[0]", "snk[0]", "default", "intra_worker", "n1", sent, 1, None, None)
    writer.close()
    collect([folder], folder / "parquet")
    figures = measure(folder / "parquet", SECONDS, {})
    return why_incomplete(folder / "parquet", {}, figures, recoveries, lost, SECONDS + 2)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ({}, None),
        ({"recoveries": ()}, None),
        ({"recoveries": (), "emitted": 50}, None),
        ({"recoveries": (Recovery(at_s=12.1, took_s=1.0),), "emitted": 50}, None),
        (
            {"recoveries": (Recovery(at_s=10.8, took_s=0.3),)},
            "a recovery had not ended 1 s before the measured interval did",
        ),
        ({"emitted": 99}, None),
        ({"emitted": 98}, "sources emitted 98 of 100 tuples/s that were due: behind"),
        ({"emitted": 103}, "sources emitted 103 of 100 tuples/s that were due: ahead, of what had been due before"),
        ({"due": None}, "sources without a schedule never catch up"),
        ({"lost": ("n2", "n1")}, "no traces of n1, n2, which cannot be reached"),
        ({"delivered": [0, 200] * 5}, None),
        ({"delivered": [100] * 9 + [115]}, "snk processed 1,000 of 1,015 tuples in the measured interval"),
        ({"delivered": [100] * 9 + [80]}, "snk processed 1,000 of 980 tuples in the measured interval"),
    ],
)
def test_metrics_of_a_run_with_recoveries_are_complete_once_the_topology_has_caught_up(
    tmp_path: Path, run: dict[str, Any], expected: str | None
) -> None:
    assert incomplete_reason(tmp_path, **run) == expected


def test_a_run_with_recoveries_is_suspect_with_a_reason() -> None:
    assert doubts_from_recoveries([], None) == []
    assert doubts_from_recoveries([EARLY], None) == ["1 recovery"]
    assert doubts_from_recoveries([EARLY, EARLY], "why") == ["2 recoveries, figures incomplete: why"]

"""Cost of changes and means over time, from traces as workers and agents write them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from msgspec.structs import asdict, replace

from agents.collected_traces import collect
from agents.trace import AGENT, TraceWriter
from analysis.measure.revision_cost import cost_of_changes, spans_of, with_costs
from analysis.measure.run_series import RunSeries
from analysis.records.accounts import Gained, Pauses, RevisionCost, RunMeans
from analysis.records.file_types import ExecutorMove, Measured, Recovery, RevisionRecord
from inventory.cluster import machines_of
from inventory.times import NS
from scheduler.online.observation import KeyFigures

START = 500 * NS
SHIFT = {"n1": 0, "n2": -300 * NS}
"""Offset of each node's clock: that of the second node is late."""

SECONDS = 100
MOVED_S, ENDED_S, BACK_S = 60, 69, 72


def latency_ms(second: int) -> float:
    """Return the mean latency of the tuples that reach sinks in a second."""
    return 20 if second < MOVED_S else 15 if second >= BACK_S else {69: 7520.0, 70: 4520.0, 71: 1520.0}[second]


def at_sinks(second: int) -> int:
    return 1000 if second < MOVED_S or second >= BACK_S else 0 if second < ENDED_S else 4000


def watts(second: int) -> float:
    return 109 if second < MOVED_S else 85 if second >= BACK_S else 131.5


def trace(folder: Path, watts: Callable[[int], float] | None = watts, flag: str = "", due: bool = True) -> Path:
    """Write traces of a spout on n1 and a sink that moves to n2 at 60 s: no tuples for 9 s, the missed ones in 3 s."""
    writers = {node: TraceWriter(folder, "r", node, 0) for node in SHIFT}
    for number in range(SECONDS):
        node = "n1" if number < MOVED_S else "n2"
        for name, out in writers.items():
            until = START + (number + 1) * NS + SHIFT[name]
            if name == "n1":
                level = 1000 * (number + 1) if due else None
                out.add(
                    "throughput", until, "src[0]", "src", "spout", 1000, 0, 0, level, 30 if number == 70 else 0, None
                )
                hop = "intra_worker" if number < MOVED_S else "inter_node"
                sent = (until, "src[0]", "snk[0]", "d", hop, "n1", at_sinks(number), 1, None)
                out.add("channel", *sent, None)
            if name == node:
                out.add("throughput", until, "snk[0]", "snk", "sink", 0, at_sinks(number), None, None, None, None)
                if at_sinks(number):
                    # Two samples around the mean.
                    for deviation in (-0.4, 0.4):
                        out.add(
                            "latency", until, "snk[0]", round((latency_ms(number) * (1 + deviation)) * 1e6), 5, None
                        )
    for out in writers.values():
        out.close()
    if watts:
        meter(folder, watts, flag)
    collect([folder], folder / "parquet")
    return folder / "parquet"


def meter(folder: Path, watts: Callable[[int], float], flag: str) -> None:
    """Write power samples: every node has a meter and draws half of the power."""
    for node, shift in SHIFT.items():
        out = TraceWriter(folder, "r", node, AGENT)
        joules = 0.0
        for number in range(10 * (SECONDS + 2)):
            at = START + shift + (number - 10) * NS // 10
            flags = ",".join(filter(None, ["first" if number == 0 else "", flag]))
            joules += watts((number - 11) // 10) / 2 / 10 if number else 0
            now = (joules, None if number == 0 else 50.0)
            out.add("power", at, "package-0", "package", "rapl", True, number, 2**32, *now, 0.01, 1000, flags, False)
        out.close()


MOVE = ExecutorMove(
    executor="snk[0]",
    source="n1/0",
    target="n2/0",
    at_s=MOVED_S,
    pause_s=9.0,
    state_bytes=77,
    buffered_rows=8,
    cpu_ms=1.5,
)


def costs(
    traces: Path,
    moves: Sequence[ExecutorMove] = (MOVE,),
    recoveries: Sequence[Recovery] = (),
    end_s: float = SECONDS,
    bound_ms: float = 0.0,
    window_s: float = 20,
    offsets: Mapping[str, int] = SHIFT,
) -> tuple[list[RevisionCost], RunMeans]:
    machines = machines_of({"n1": "10.0.0.1", "n2": "10.0.0.2"})
    series = RunSeries(traces, machines, offsets, START, bound_ms)
    return cost_of_changes(series, spans_of(moves, []), recoveries, end_s, window_s)


def test_the_cost_of_a_long_pause_is_found_in_the_traces(tmp_path: Path) -> None:
    (cost,), _ = costs(trace(tmp_path))
    assert (cost.number, cost.scripted, cost.begun_s, cost.ended_s, cost.recovered_s) == (1, True, 60, 69, 72)
    assert (cost.moves, cost.pause_max_s, cost.pause_sum_s, cost.silent_s) == (1, 9, 9, 9)
    assert (cost.buffered_rows, cost.replayed_tuples, cost.state_bytes, cost.moving_cpu_ms) == (8, 30, 77, 1.5)
    assert (cost.dip_tuples, cost.surplus_tuples, cost.net_loss_tuples) == (9000, 9000, 0)
    assert cost.latency_excess_tuple_s == pytest.approx(54_000)
    assert (cost.net_loss_error_tuples, cost.latency_error_tuple_s) == (0, 0)
    assert cost.energy is not None
    assert cost.energy.joules == pytest.approx(270, abs=1)
    assert 0 < cost.energy.bound_joules < 5
    assert (cost.energy.sources, cost.energy.modelled) == (["rapl"], False)
    assert (cost.pay_back.latency, cost.pay_back.throughput) == (pytest.approx(10_800), "never")
    assert cost.pay_back.energy == pytest.approx(270 / 24, rel=0.01)
    assert cost.before is not None
    assert cost.after is not None
    assert asdict(cost.before) == {
        "from_s": 40,
        "to_s": 60,
        "due_tuples_per_s": 1000,
        "sink_tuples_per_s": 1000,
        "latency_mean_ms": 20,
        "latency_p50_ms": 12,
        "latency_p95_ms": 28,
        "hops": {"intra_worker": 1000, "inter_worker": 0, "inter_node": 0},
        "nodes": 1,
        "watts": pytest.approx(109, abs=0.1),
        "sources": ["rapl"],
        "modelled": False,
    }
    assert (cost.after.from_s, cost.after.to_s, cost.after.nodes) == (72, 92, 2)
    assert (cost.after.latency_mean_ms, cost.after.latency_p95_ms) == (15, 21)
    assert cost.after.hops["inter_node"] == 1000


def test_means_are_those_of_the_whole_run_and_of_the_time_after_the_last_change(tmp_path: Path) -> None:
    traces = trace(tmp_path)
    _, means = costs(traces)
    assert means.whole_run is not None
    assert means.after_last_revision is not None
    assert (means.whole_run.from_s, means.whole_run.to_s) == (0, SECONDS)
    assert means.whole_run.sink_tuples_per_s == 1000
    assert means.whole_run.latency_mean_ms == pytest.approx((60 * 20 + 7520 + 4520 + 1520 + 28 * 15) / 91, abs=0.001)
    assert (means.after_last_revision.from_s, means.after_last_revision.to_s) == (72, SECONDS)
    assert means.after_last_revision.latency_mean_ms == 15
    # Less than ten seconds remain after the change, or there is no change.
    assert costs(traces, end_s=81.9)[1].after_last_revision is None
    unchanged = costs(traces, moves=())
    assert unchanged[0] == []
    assert (unchanged[1].whole_run, unchanged[1].after_last_revision) == (means.whole_run, None)


def test_windows_end_at_other_events(tmp_path: Path) -> None:
    traces = trace(tmp_path)
    around = [Recovery(at_s=50.5, took_s=0.25), Recovery(at_s=85.5, took_s=1)]
    (cost,), means = costs(traces, recoveries=around)
    assert cost.before is not None
    assert cost.after is not None
    assert (cost.before.from_s, cost.after.from_s, cost.after.to_s) == (51, 72, 85)
    # A window of nine seconds before the change is too short.
    assert (cost.net_loss_tuples, cost.pay_back.latency) == (0, "unknown")
    assert means.after_last_revision is not None
    assert means.after_last_revision.from_s == 86.5
    (cost,), _ = costs(traces, recoveries=[Recovery(at_s=75.5, took_s=1)])
    assert (cost.recovered_s, cost.net_loss_tuples, cost.after, cost.energy) == (None, None, None, None)
    assert cost.reason == "throughput or latency did not return to their level before 75.5 s"
    assert cost.before is not None
    assert (cost.pay_back.throughput, cost.pay_back.latency) == (None, None)
    (cost,), _ = costs(traces, recoveries=[Recovery(at_s=58.5, took_s=0.9)])
    assert cost.reason == "no whole second without another event before it"
    again = ExecutorMove(executor="src[0]", source="n1/0", target="n2/0", at_s=80.5, pause_s=0.5)
    first, second = costs(traces, moves=[MOVE, again])[0]
    assert (first.number, first.recovered_s, second.number, second.recovered_s) == (1, 72, 2, 81.5)
    # Its window begins after the recovery from the first change, and is in whole seconds.
    assert first.after is not None
    assert second.before is not None
    assert (first.after.to_s, second.before.from_s) == (80, 72.5)


def test_windows_have_the_requested_length(tmp_path: Path) -> None:
    (cost,), _ = costs(trace(tmp_path), window_s=15.9)
    assert cost.before is not None
    assert cost.after is not None
    assert (cost.before.from_s, cost.before.to_s, cost.after.from_s, cost.after.to_s) == (45, 60, 72, 87)


def test_clocks_of_nodes_are_mapped_to_the_controllers(tmp_path: Path) -> None:
    traces = trace(tmp_path)
    (cost,), _ = costs(traces, offsets={**SHIFT, "n2": 0})
    # Without the offset the second node's rows lie before the start.
    assert cost.recovered_s is None


def test_latencies_up_to_the_error_of_clocks_are_unknown(tmp_path: Path) -> None:
    (cost,), means = costs(trace(tmp_path), bound_ms=14)
    assert cost.before is not None
    assert (cost.before.latency_p50_ms, cost.before.latency_p95_ms) == (None, 28)
    assert means.after_last_revision is not None
    assert (means.after_last_revision.latency_p50_ms, means.after_last_revision.latency_p95_ms) == (None, 21)


def test_energy_is_null_without_a_meter_and_marked_when_modelled(tmp_path: Path) -> None:
    (cost,), means = costs(trace(tmp_path / "none", watts=None))
    assert (cost.energy, cost.pay_back.energy) == (None, None)
    assert means.whole_run is not None
    assert (means.whole_run.watts, means.whole_run.sources, means.whole_run.modelled) == (None, [], False)
    (cost,), _ = costs(trace(tmp_path / "model", flag="modelled"))
    assert cost.energy is not None
    assert (cost.energy.joules, cost.energy.modelled) == (pytest.approx(270, abs=1), True)


@pytest.mark.parametrize("flag", ["", "modelled"])
def test_watts_of_every_window_have_their_source_and_are_marked_when_modelled(tmp_path: Path, flag: str) -> None:
    (cost,), means = costs(trace(tmp_path, flag=flag))
    for window in (cost.before, cost.after, means.whole_run, means.after_last_revision):
        assert window is not None
        assert window.watts is not None
        assert (window.sources, window.modelled) == (["rapl"], bool(flag))


def test_without_a_schedule_the_mean_before_is_expected(tmp_path: Path) -> None:
    (cost,), means = costs(trace(tmp_path, due=False))
    assert (cost.dip_tuples, cost.surplus_tuples, cost.recovered_s) == (9000, 9000, 72)
    assert means.whole_run is not None
    assert means.whole_run.due_tuples_per_s is None


def test_cost_and_gain_of_a_revision_are_from_windows_of_the_requested_length(tmp_path: Path) -> None:
    made = replace(MOVE, revision=1)
    record = RevisionRecord(
        number=1, at_s=59, decided_s=0.5, outcome="done", begun_s=60, ended_s=69, moves=1, how="restart",
        expects=KeyFigures(cut=900.0), before=KeyFigures(cut=5.0), after=KeyFigures(cut=1000.0),
    )  # fmt: skip
    no_change = RevisionRecord(number=2, at_s=90, decided_s=0.1, outcome="no")
    measured = Measured(moves=[made], revisions=[record, no_change])
    machines = machines_of({"n1": "10.0.0.1", "n2": "10.0.0.2"})
    found = with_costs(measured, trace(tmp_path), machines, SHIFT, START, SECONDS, window_s=12)
    (cost,), (first, second) = found.revision_costs, found.revisions
    assert cost.before is not None
    assert (cost.before.from_s, cost.before.to_s) == (48, 60)
    assert found.decisions == {"done": 1, "no": 1}
    assert (first.how, first.moves, first.pause_ms) == ("restart", 1, Pauses(max=9000, sum=9000))
    assert first.cost is not None
    assert (first.cost.net_loss_tuples, first.cost.recovered_s, first.cost.energy) == (0, 72, cost.energy)
    assert first.gain is not None
    assert first.gain.cut == Gained(before=5, after=1000, expects=900)
    assert first.gain.hops == Gained(before=0, after=1000, expects=900)
    watts_after = pytest.approx(85, rel=0.01)
    assert (first.gain.watts.before, first.gain.watts.after) == (pytest.approx(109, rel=0.01), watts_after)
    assert first.gain.throughput_tuples_per_s == Gained(before=1000, after=1000)
    assert first.payback_s == cost.pay_back
    assert (second.pause_ms, second.cost, second.gain, second.payback_s) == (None, None, None, None)

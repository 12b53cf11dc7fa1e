"""All readers of traces find the same numbers of tuples, whatever the pattern of seconds with and without them."""

from collections.abc import Collection, Sequence
from pathlib import Path

import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis_examples import one_in
from observed_rounds import nodes

from agents.collected_traces import collect
from agents.trace import AGENT, CONTROLLER, COVERING, TraceWriter
from analysis.measure.covered import Spans, read_table
from analysis.measure.energy_attribution import Delivered
from analysis.measure.finished_run import FinishedRun
from analysis.measure.observed import observe_run, traffic_of_run
from analysis.measure.run_metrics import measure
from analysis.measure.run_series import RunSeries
from analysis.records.campaign import Run
from analysis.records.file_types import ClockRecord, NodeRecord, RunRecord, Times
from analysis.records.interval_metrics import Window
from analysis.tables.spark_tables import collected
from analysis.tables.traces import Traces
from inventory.cluster import machines_of
from inventory.times import NS
from scheduler.problem import Slot

START = 50 * NS
SECONDS = 12
DUE = 1_000
"""Tuples due per report."""

CLUSTER = nodes(cores=2)
PLACES = {"s[0]": Slot("n1", 0), "b[0]": Slot("n1", 1), "k[0]": Slot("n2", 0)}
ROLES = {"s[0]": "spout", "b[0]": "bolt", "k[0]": "sink"}
CHANNELS = {("s[0]", "b[0]"): "inter_worker", ("b[0]", "k[0]"): "inter_node"}
OFFSETS = {"n1": 0, "n2": -7 * NS, "n3": 3 * NS}

Counts = Sequence[int]

counts = st.lists(st.one_of(st.just(0), st.integers(1, 5_000)), min_size=SECONDS, max_size=SECONDS)
"""Tuples per report; none in many of them."""


def write(
    folder: Path,
    sent: Sequence[Counts],
    reports: Sequence[int],
    interval: tuple[int, int],
    unmarked: Collection[Slot] = (),
) -> Path:
    """Write the traces of a run in which `sent` has the tuples of each channel in the time until each report.

    Args:
        folder: folder of the files.
        sent: of each channel.
        reports: times of the reports, in ns since the start.
        interval: begin and end of the measured interval, in ns since the start.
        unmarked: workers that did not record begin and end, as those that are started later.
    """
    writers = {slot: TraceWriter(folder, "r", slot.node, slot.index) for slot in PLACES.values()}
    agents = {node: TraceWriter(folder, "r", node, AGENT) for node in OFFSETS}
    marked = [(slot.node, writer) for slot, writer in writers.items() if slot not in unmarked]
    for node, writer in [*marked, *agents.items()]:
        for kind, at in zip(("measure_start", "measure_end"), interval, strict=True):
            writer.add("event", START + OFFSETS[node] + at, kind, "", None, None)
    flows = dict(zip(CHANNELS, sent, strict=True))
    for number, (since, at) in enumerate(zip([0, *reports[:-1]], reports, strict=True)):
        for name, slot in PLACES.items():
            clock, writer = START + OFFSETS[slot.node], writers[slot]
            emitted = sum(flow[number] for (source, _), flow in flows.items() if source == name)
            processed = sum(flow[number] for (_, target), flow in flows.items() if target == name)
            spout = (0, DUE * (number + 1), 0) if ROLES[name] == "spout" else (None, None, None)
            row = (name, name[0], ROLES[name], emitted, processed, *spout)
            writer.add("throughput", clock + at, *row, clock + since)
            writer.add("executor", clock + at, name, processed, 0, 0, clock + since)
            for (source, target), flow in flows.items():
                if source == name and flow[number]:
                    hop = (CHANNELS[source, target], PLACES[target].node, flow[number], 1, 10 * flow[number])
                    writer.add("channel", clock + at, source, target, "d", *hop, clock + since)
        for node, writer in agents.items():
            clock = START + OFFSETS[node]
            writer.add("cpu", clock + at, "node", node, 0.5, False, None, None, clock + since)
    for each in [*writers.values(), *agents.values()]:
        each.close()
    control = TraceWriter(folder, "r", CONTROLLER, AGENT)
    control.add("event", START, "source_started", "", "", None)
    control.close()
    collect([folder], folder / "traces")
    return folder


def finished(folder: Path, interval: tuple[int, int]) -> FinishedRun:
    assignments = [{"executor": name, "node": slot.node, "slot": slot.index} for name, slot in PLACES.items()]
    record = RunRecord(
        status="ok",
        workload="t",
        scheduler="even",
        repetition=1,
        placement={"topologies": {"t": {"assignments": assignments}}, "nodes": []},
        nodes={n: NodeRecord(address="", facts=None, clock=ClockRecord(offset, 0)) for n, offset in OFFSETS.items()},
        times=Times(source_start_ns=START, measure_start_ns=START + interval[0], measure_end_ns=START + interval[1]),
    )
    return FinishedRun(Run("r", folder, record, {}), CLUSTER)


def inside(flow: Counts, reports: Sequence[int], since: float, until: float) -> float:
    """Return the tuples of a channel in an interval, those of each report spread evenly."""
    found = 0.0
    for count, begin, end in zip(flow, [0, *reports[:-1]], reports, strict=True):
        found += count * max(0, min(end, until) - max(begin, since)) / (end - begin)
    return found


PATTERN = ((0, 900, 0, 0, 0, 300, 0, 0, 0, 40, 0, 7), (5, 0, 0, 0, 0, 240, 0, 0, 0, 0, 4_000, 4_000))
"""A few tuples in few seconds of the interval, and many in the drain after it."""

REPORTS = [(number + 1) * NS + number * 70_000_000 for number in range(SECONDS)]
INTERVAL = (round(2.4 * NS), round(10.4 * NS))


def figures(traces: Path) -> tuple[float | None, ...]:
    found = measure(traces, (INTERVAL[1] - INTERVAL[0]) / NS, OFFSETS)
    return found.sink_tuples_per_s, found.throughput_tuples_per_s, *(found.hops[hop] for hop in CHANNELS.values())


def as_earlier_versions(traces: Path) -> None:
    """Rewrite traces as versions did whose rows do not say which time they cover."""
    for table in COVERING:
        rows = pyarrow.parquet.read_table(traces / f"{table}.parquet")
        pyarrow.parquet.write_table(rows.drop_columns(["since_ns"]), traces / f"{table}.parquet")


def test_tuples_of_the_drain_do_not_count_whether_or_not_rows_say_what_they_cover(tmp_path: Path) -> None:
    traces = write(tmp_path, PATTERN, REPORTS, INTERVAL) / "traces"
    expected = [inside(flow, REPORTS, *INTERVAL) for flow in PATTERN]
    assert figures(traces) == (pytest.approx(expected[1] / 8, abs=1e-3),) * 2 + tuple(map(round, expected))
    found = figures(traces)
    as_earlier_versions(traces)
    assert figures(traces) == found


@pytest.mark.spark
@pytest.mark.pipelines
def test_the_tables_of_the_report_have_the_figures_of_run_json(tmp_path: Path) -> None:
    from spark_pipelines import session

    folders = [write(tmp_path / name, PATTERN, REPORTS, INTERVAL) for name in ("new", "old")]
    as_earlier_versions(folders[1] / "traces")
    folders.append(write(tmp_path / "added", PATTERN, REPORTS, INTERVAL, unmarked=[PLACES["k[0]"]]))
    sinks, _, *hops = figures(folders[0] / "traces")
    spark = session()
    for at, folder in enumerate(folders):
        traces = Traces(spark, (finished(folder, INTERVAL).run,), tmp_path / str(at))
        components = {row["component"]: row for row in collected(traces, "components")}
        assert components["k"]["processed_tuples_per_s"] == pytest.approx(sinks, abs=1e-3)
        assert components["s"]["due_tuples_per_s"] == pytest.approx(inside((DUE,) * SECONDS, REPORTS, *INTERVAL) / 8)
        assert components["b"]["due_tuples_per_s"] is None
        sent = {row["hop"]: row["tuples_per_s"] for row in collected(traces, "hops")}
        assert [sent[hop] * 8 for hop in CHANNELS.values()] == [pytest.approx(each, abs=0.5) for each in hops]
        assert [row["cores"] for row in collected(traces, "cpu")] == pytest.approx([0.5] * len(OFFSETS))
        timeline = collected(traces, "timeline")
        whole = inside(PATTERN[1], REPORTS, INTERVAL[0], INTERVAL[1])
        assert sum(row["sink_tuples_per_s"] for row in timeline if row["second"] >= 0) == pytest.approx(whole)


@settings(max_examples=one_in(2), deadline=None)
@given(
    sent=st.tuples(counts, counts),
    late=st.lists(st.integers(0, NS // 2), min_size=SECONDS, max_size=SECONDS),
    begin=st.integers(0, 4 * NS),
    length=st.integers(NS, 7 * NS),
    cut=st.floats(0.1, 0.9),
)
def test_all_readers_find_the_tuples_that_were_counted(
    tmp_path_factory: pytest.TempPathFactory,
    sent: tuple[Counts, Counts],
    late: Sequence[int],
    begin: int,
    length: int,
    cut: float,
) -> None:
    reports = [(number + 1) * NS + delay for number, delay in enumerate(late)]
    interval = (begin, begin + length)
    folder = write(tmp_path_factory.mktemp("run"), sent, reports, interval)
    traces, seconds = folder / "traces", length / NS
    expected = [inside(flow, reports, *interval) for flow in sent]
    near = [pytest.approx(each, abs=1.0) for each in expected]

    halves = [Window(name="a", from_s=0, to_s=cut * seconds), Window(name="b", from_s=cut * seconds, to_s=seconds)]
    metrics = measure(traces, seconds, OFFSETS, windows=halves)
    assert (
        metrics.sink_tuples_per_s == metrics.throughput_tuples_per_s == pytest.approx(expected[1] / seconds, abs=0.01)
    )
    assert [metrics.hops[hop] for hop in CHANNELS.values()] == near
    for hop, each in zip(CHANNELS.values(), expected, strict=True):
        assert sum(window.hops[hop] or 0 for window in metrics.windows) == pytest.approx(each, abs=1.5)

    due_per_s = pytest.approx(inside((DUE,) * SECONDS, reports, *interval) / seconds, abs=0.01)
    assert metrics.due_tuples_per_s == due_per_s

    run = finished(folder, interval)
    since_s, until_s = begin / NS, (begin + length) / NS
    traffic = traffic_of_run(run, since_s, until_s, lambda _share: None)
    rates = [traffic.rate.get(pair, 0.0) for pair in CHANNELS]
    assert rates == [pytest.approx(each / seconds, abs=0.01) for each in expected]
    window = observe_run(run, until_s, seconds, lambda _share: None)
    assert window.sink.per_s == pytest.approx(expected[1] / seconds, abs=0.01)
    assert window.source.due_per_s == due_per_s
    assert window.as_traffic.rate == traffic.rate

    delivered = Delivered(traces, Spans(read_table(traces, "event", "kind"), OFFSETS))
    assert [delivered.by_hop[hop] for hop in CHANNELS.values()] == near
    assert delivered.to_sinks == near[1]

    series = RunSeries(traces, machines_of(dict.fromkeys(OFFSETS, "10.0.0.1")), OFFSETS, START)
    means = series.means(since_s, until_s)
    assert means.sink_tuples_per_s == pytest.approx(expected[1] / seconds, abs=0.01)
    assert [means.hops[hop] * seconds for hop in CHANNELS.values()] == near
    assert means.due_tuples_per_s == due_per_s
    whole = series.bins(0.0, SECONDS + 1)
    assert whole.due is not None
    assert whole.due.sum() == pytest.approx(DUE * SECONDS)
    assert whole.tuples.sum() == pytest.approx(sum(sent[1]), abs=0.01)

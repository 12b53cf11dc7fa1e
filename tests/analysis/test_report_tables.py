"""The job's tables against the same figures computed row by row in plain Python from the same files."""

import csv
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import pstdev
from typing import Any

import pyarrow.parquet
import pytest
from msgspec.structs import replace as replace_fields

from analysis.measure.run_metrics import measure
from analysis.page.compared_tables import COMPARED_COLUMNS, compared_tables
from analysis.records.campaign import Run, load_campaign
from analysis.tables.summary import RUN_COLUMNS, recorded_rows

NS = 1_000_000_000
Row = dict[str, Any]

pytestmark = [pytest.mark.spark, pytest.mark.long]


class ReferenceTables:
    """Tables of one run, computed in plain Python from its traces."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.span: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
        for row in self.rows("event"):
            if row["kind"] in ("measure_start", "measure_end"):
                self.span[row["node"], row["worker"]][row["kind"] == "measure_end"] = row["t_ns"]

    def rows(self, table: str) -> list[Row]:
        with pyarrow.parquet.ParquetFile(self.folder / "traces" / f"{table}.parquet") as file:
            return file.read().to_pylist()

    def inside(self, table: str) -> list[Row]:
        found = []
        for row in self.rows(table):
            start, end = self.span[row["node"], row["worker"]]
            if start < row["t_ns"] <= end:
                found.append(row)
        return found

    def parts(self, table: str) -> Iterable[tuple[Row, int, int, int]]:
        """Yield (row, covered ns, part in the measured interval in ns, interval ns)."""
        for row in sorted(self.rows(table), key=lambda row: row["t_ns"]):
            start, end = self.span[row["node"], row["worker"]]
            since = row["since_ns"]
            yield row, row["t_ns"] - since, max(0, min(row["t_ns"], end) - max(since, start)), end - start

    def rate(self, table: str, column: str, by: str) -> dict[str, float]:
        found: dict[str, float] = defaultdict(float)
        for row, covered, within, interval in self.parts(table):
            if row[column] is not None:
                found[row[by]] += row[column] * within / covered / (interval / NS)
        return found


def table(report: Path, name: str) -> list[dict[str, str]]:
    with (report / "tables" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def truths(small_campaign: Path) -> Mapping[str, ReferenceTables]:
    """Reference tables of the runs that count: all but the failed one and the one with the wrong answer."""
    names = sorted(p.name for p in (small_campaign / "runs").iterdir())
    return {n: ReferenceTables(small_campaign / "runs" / n) for n in names if not n.startswith(("008", "009"))}


def close(value: str, expected: float) -> bool:
    return math.isclose(float(value), expected, rel_tol=1e-7, abs_tol=1e-9)


def test_every_run_is_listed_and_only_those_that_count_have_figures(
    small_report: Path, truths: Mapping[str, ReferenceTables]
) -> None:
    runs = table(small_report, "runs")
    assert len(runs) == 12
    assert {row["run"] for row in runs if row["counts"] == "true"} == set(truths)
    by_run = {row["run"]: row for row in runs}
    failed = by_run["008-exclamation-top-storm-r2"]
    assert (failed["status"], failed["reason"]) == ("failed", "worker n2/0 ended with signal 9")
    wrong = by_run["009-wordcount-even-r3"]
    assert wrong["status"] == "ok"
    assert wrong["reason"].startswith("wrong answer: ('the',) = (3,)")
    assert all(row["sink_tuples_per_s"] == "" for row in (failed, wrong))


def test_throughput_counts_rows_by_their_share_of_the_measured_interval(
    small_report: Path, truths: Mapping[str, ReferenceTables]
) -> None:
    runs = {row["run"]: row for row in table(small_report, "runs")}
    components = table(small_report, "components")
    for name, reference in truths.items():
        emitted = reference.rate("throughput", "emitted", "component")
        processed = reference.rate("throughput", "processed", "component")
        of_run = [row for row in components if row["run"] == name]
        assert len(of_run) == 4
        for row in of_run:
            assert close(row["emitted_tuples_per_s"], emitted[row["component"]])
            assert close(row["processed_tuples_per_s"], processed[row["component"]])
        first, last = ("spout", "count") if "wordcount" in name else ("word", "exclaim2")
        assert close(runs[name]["source_tuples_per_s"], emitted[first])
        assert close(runs[name]["sink_tuples_per_s"], processed[last])
    executors = {row["component"]: row["executors"] for row in components}
    assert executors == {"spout": "6", "split": "18", "count": "8", "word": "6", "exclaim1": "9", "exclaim2": "6"} | {
        "__acker": "3"
    }


def test_tables_without_a_report_have_the_figures_of_the_report(small_campaign: Path, small_report: Path) -> None:
    campaign = load_campaign(small_campaign)
    measured = replace(campaign, runs=[with_measured(run) for run in campaign.runs])
    baseline = campaign.baseline(None)
    recorded = compared_tables(measured, recorded_rows(measured), baseline)
    by_spark = {name: table(small_report, name) for name in COMPARED_COLUMNS}
    compared: Counter[str] = Counter()
    for name, rows in recorded.items():
        mine = [row for row in rows if row.get("metric") not in NOT_RECORDED]
        theirs = [row for row in by_spark[name] if row.get("metric") not in NOT_RECORDED]
        assert len(mine) == len(theirs), name
        for own, other in zip(mine, theirs, strict=True):
            for column in COMPARED_COLUMNS[name]:
                if column not in NOT_RECORDED and (own[column] is not None or other[column]):
                    assert_same(name, column, own[column], other[column])
                    compared[f"{name}.{column}"] += 1
    missing = set(RUN_COLUMNS) - {key.partition(".")[2] for key in compared if key.startswith("runs.")}
    assert missing <= NOT_RECORDED | {"recoveries", "incomplete"}
    assert {f"{name}.{column}" for name, column in SURELY_COMPARED} <= compared.keys()


NOT_RECORDED = {
    *("steady_from_s", "worst_late_ms", "inter_worker_bytes_per_s", "inter_node_bytes_per_s", "worker_cores"),
    *("agent_cores", "host_cores", "cpu_s_per_million_tuples", "busy_cores", "blocked_executors", "worker_memory_mb"),
    "agent_memory_mb",
    "latency_bound_ms",  # the records of this campaign have none
}
"""Columns of `runs` that only the report has."""

SURELY_COMPARED = [
    *(("ranking", column) for column in ("median", "low", "high", "change_percent")),
    *(("pairs", column) for column in ("ratio", "difference")),
    *(("comparison", column) for column in ("n", "smallest", "largest")),
    ("energy", "joules"),
]


def with_measured(run: Run) -> Run:
    """Return a run with the metrics in its record that are computed at its end."""
    if not run.counts or run.file is None or run.file.measured is None:
        return run
    known = run.file.measured
    found = measure(run.folder / "traces", 4.0, {})
    found = replace_fields(found, saturated=known.saturated, energy=known.energy)
    return replace(run, file=replace_fields(run.file, measured=found))


def assert_same(name: str, column: str, recorded: Any, by_spark: str) -> None:
    """Numbers of run.json are rounded, and hops of a run are whole tuples over the length on the controller's clock."""
    if isinstance(recorded, bool):
        assert by_spark == str(recorded).lower(), (name, column)
    elif isinstance(recorded, int | float):
        assert float(by_spark) == pytest.approx(recorded, rel=2e-3, abs=0.15 if "percent" in column else 1e-3), (
            name,
            column,
        )
    else:
        assert by_spark == (recorded or ""), (name, column)


def test_due_tuples_are_the_progress_of_schedules_within_the_interval(
    small_report: Path, truths: Mapping[str, ReferenceTables]
) -> None:
    runs = {row["run"]: row for row in table(small_report, "runs")}
    for name, reference in truths.items():
        reached: dict[str, int] = {}
        due = 0.0
        for row, covered, within, interval in reference.parts("throughput"):
            if row["due"] is not None:
                newly = row["due"] - reached.get(row["executor"], 0)
                reached[row["executor"]] = row["due"]
                due += newly * within / covered / (interval / NS)
        assert close(runs[name]["due_tuples_per_s"], due)
        ratio = due / float(runs[name]["source_tuples_per_s"])
        assert math.isclose(ratio, 1.5 if runs[name]["saturated"] == "true" else 1.0, rel_tol=1e-3)
    components = table(small_report, "components")
    assert {row["role"] for row in components if row["due_tuples_per_s"]} == {"spout"}


def test_percentiles_are_those_of_all_samples(small_report: Path, truths: Mapping[str, ReferenceTables]) -> None:
    rows = table(small_report, "latency")
    runs = {row["run"]: row for row in table(small_report, "runs")}
    for name, reference in truths.items():
        samples = sorted(row["value_ns"] for row in reference.inside("latency") for _ in range(row["count"]))
        of_run = {row["quantile"]: row for row in rows if row["run"] == name}
        assert {"0.5", "0.95", "0.99", "0.999", "1.0"} <= set(of_run)
        for quantile, row in of_run.items():
            # Exact rank: the quantile has at most five digits.
            parts = round(float(quantile) * 100_000)
            rank = -(-parts * len(samples) // 100_000)
            assert close(row["latency_ms"], samples[rank - 1] / 1e6), quantile
            assert row["samples"] == str(len(samples))
        assert runs[name]["latency_max_ms"] == of_run["1.0"]["latency_ms"]
        assert runs[name]["latency_p95_ms"] == of_run["0.95"]["latency_ms"]


def test_hop_traffic_is_separate_by_kind_and_has_no_bytes_within_a_worker(
    small_report: Path, truths: Mapping[str, ReferenceTables]
) -> None:
    rows = table(small_report, "hops")
    runs = {row["run"]: row for row in table(small_report, "runs")}
    for name, reference in truths.items():
        tuples = reference.rate("channel", "tuples", "hop")
        nbytes = reference.rate("channel", "bytes", "hop")
        of_run = {row["hop"]: row for row in rows if row["run"] == name}
        assert set(of_run) == set(tuples)
        for hop, row in of_run.items():
            assert close(row["tuples_per_s"], tuples[hop])
            assert row["bytes_per_s"] == "" if hop == "intra_worker" else close(row["bytes_per_s"], nbytes[hop])
            assert close(runs[name][f"{hop}_tuples_per_s"], tuples[hop])
    # The even scheduler uses one worker per node, so that no tuple is sent between workers of a node.
    assert {row["inter_worker_tuples_per_s"] for row in runs.values() if row["scheduler"] == "even"} == {"0.0", ""}


def test_busy_and_blocked_time_add_up(small_report: Path, truths: Mapping[str, ReferenceTables]) -> None:
    rows = table(small_report, "busy")
    for name, reference in truths.items():
        busy: dict[str, float] = defaultdict(float)
        blocked: dict[str, float] = defaultdict(float)
        for row, covered, within, interval in reference.parts("executor"):
            component = row["executor"].partition("[")[0]
            busy[component] += row["busy_ns"] * within / covered / interval
            blocked[component] += row["blocked_ns"] * within / covered / interval
        for row in (row for row in rows if row["run"] == name):
            assert close(row["busy_cores"], busy[row["component"]])
            assert close(row["blocked_executors"], blocked[row["component"]])


def test_the_timeline_splits_rows_over_the_seconds_that_they_cover(
    small_report: Path, truths: Mapping[str, ReferenceTables]
) -> None:
    rows = table(small_report, "timeline")
    for name, reference in truths.items():
        expected: dict[tuple[int, str], float] = defaultdict(float)
        for row, covered, _, _ in reference.parts("throughput"):
            start, _ = reference.span[row["node"], row["worker"]]
            for second in range(-1, 4):
                overlap = min(row["t_ns"], start + (second + 1) * NS) - max(row["t_ns"] - covered, start + second * NS)
                count = row["emitted"] if row["role"] == "spout" else row["processed"]
                if overlap > 0 and row["role"] in ("spout", "sink"):
                    expected[second, row["role"]] += count * overlap / covered
        of_run = {int(row["second"]): row for row in rows if row["run"] == name}
        # Sources start a second before the interval, which lasts four; in each process a little less or more.
        assert set(of_run) == {-1, 0, 1, 2, 3}
        for second in of_run:
            assert close(of_run[second]["source_tuples_per_s"], expected[second, "spout"])
            assert close(of_run[second]["sink_tuples_per_s"], expected[second, "sink"])


def test_latency_over_time_is_the_mean_of_the_samples_of_a_second(
    small_report: Path, truths: Mapping[str, ReferenceTables]
) -> None:
    rows = table(small_report, "latency_timeline")
    for name, reference in truths.items():
        samples: dict[int, int] = defaultdict(int)
        total: dict[int, int] = defaultdict(int)
        for row in reference.rows("latency"):
            start, _ = reference.span[row["node"], row["worker"]]
            # A row belongs to the second that contains the middle of the time it covers.
            second = ((row["since_ns"] + row["t_ns"]) // 2 - start) // NS
            samples[second] += row["count"]
            total[second] += row["count"] * row["value_ns"]
        of_run = {int(row["second"]): row for row in rows if row["run"] == name}
        assert set(of_run) == {-1, 0, 1, 2, 3}
        for second in of_run:
            assert int(of_run[second]["samples"]) == samples[second]
            assert close(of_run[second]["latency_ms"], total[second] / samples[second] / 1e6)


def test_cpu_of_a_shared_host_is_not_counted_once_per_node(
    small_report: Path, truths: Mapping[str, ReferenceTables]
) -> None:
    runs = {row["run"]: row for row in table(small_report, "runs")}
    rows = table(small_report, "cpu")
    for name, reference in truths.items():
        levels: dict[tuple[str, str, str], list[tuple[float, int]]] = defaultdict(list)
        for row, _, within, _ in reference.parts("cpu"):
            levels[row["node"], row["scope"], row["name"]].append((row["cores"], within))
        sums: dict[tuple[str, str], float] = defaultdict(float)
        for (node, scope, _), values in levels.items():
            sums[node, scope] += sum(cores * within for cores, within in values) / sum(within for _, within in values)
        of_run = {(row["node"], row["scope"]): row["cores"] for row in rows if row["run"] == name}
        assert set(of_run) == set(sums)
        assert all(close(of_run[key], sums[key]) for key in sums)
        total = {scope: sum(v for (_, s), v in sums.items() if s == scope) for scope in ("worker", "agent", "core")}
        assert close(runs[name]["worker_cores"], total["worker"])
        assert close(runs[name]["agent_cores"], total["agent"])
        assert close(runs[name]["host_cores"], total["core"] / 5)
        per_million = total["worker"] / float(runs[name]["sink_tuples_per_s"]) * 1e6
        assert math.isclose(float(runs[name]["cpu_s_per_million_tuples"]), per_million, rel_tol=1e-6)


def test_memory_and_network(small_report: Path, truths: Mapping[str, ReferenceTables]) -> None:
    runs = {row["run"]: row for row in table(small_report, "runs")}
    network = table(small_report, "network")
    for name, reference in truths.items():
        levels: dict[tuple[str, str], list[int]] = defaultdict(list)
        for row in reference.inside("memory"):
            if row["scope"] == "worker":
                levels[row["node"], row["name"]].append(row["bytes"])
        assert close(runs[name]["worker_memory_mb"], sum(sum(v) / len(v) for v in levels.values()) / 1e6)
        counters: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for row in reference.inside("network"):
            counters[row["node"]].append((row["t_ns"], row["rx_bytes"]))
        for row in (row for row in network if row["run"] == name):
            first, last = min(counters[row["node"]]), max(counters[row["node"]])
            assert close(row["rx_bytes_per_s"], (last[1] - first[1]) / (last[0] - first[0]) * NS)
            assert row["shared"] == "true"


def test_nodes_and_workers_used_are_those_of_the_placement(small_report: Path) -> None:
    for row in table(small_report, "runs"):
        if row["counts"] == "true":
            assert (row["nodes_used"], row["slots_used"]) == ("5" if row["scheduler"] == "even" else "2", "5")


def test_below_ten_repetitions_ranges_are_given_and_nothing_is_inferred(small_report: Path) -> None:
    runs = table(small_report, "runs")
    comparison = table(small_report, "comparison")
    cell = next(
        row
        for row in comparison
        if (row["workload"], row["scheduler"], row["metric"]) == ("wordcount", "top-storm", "latency_p99_ms")
    )
    values = [
        float(row["latency_p99_ms"])
        for row in runs
        if (row["workload"], row["scheduler"]) == ("wordcount", "top-storm") and row["counts"] == "true"
    ]
    assert (int(cell["n"]), float(cell["smallest"]), float(cell["largest"])) == (3, min(values), max(values))
    assert {row[name] for row in comparison for name in ("median", "median_low", "median_high")} == {""}
    assert table(small_report, "differences") == []


def test_time_slots_are_summed_up_where_runs_have_them(
    small_report: Path, truths: Mapping[str, ReferenceTables]
) -> None:
    found = {row["run"]: row for row in table(small_report, "slots")}
    assert found.keys() == {name for name in truths if "top-storm" in name}
    for name, row in found.items():
        slots = truths[name].inside("slot")
        stalled = [slot for slot in slots if slot["largest_parts"] > 1]
        assert stalled
        assert int(row["slots"]) == len(slots)
        assert int(row["idle_slots"]) == sum(slot["parts"] == 0 for slot in slots)
        assert int(row["stalled_slots"]) == len(stalled)
        assert (int(row["parts"]), int(row["tuples"])) == tuple(sum(s[k] for s in slots) for k in ("parts", "tuples"))
        assert close(row["slot_ms"], sum(slot["lasted_ns"] for slot in slots) / len(slots) / 1e6)
        for column in ("stall_predicted", "stall"):
            assert close(row[f"{column}_ms"], sum(slot[f"{column}_ns"] for slot in stalled) / len(stalled) / 1e6)
        assert close(row["waiting"], sum(slot["waiting"] for slot in slots) / len(slots))
        assert (int(row["most_parts"]), int(row["largest_outbox"])) == (2, 7)

        busy = [slot for slot in slots if slot["parts"]]
        transfer = [slot["arrived_ns"] for slot in busy]
        processing = [slot["processed_ns"] - slot["arrived_ns"] for slot in busy]
        v, w = sum(processing) / len(busy), 250_000
        arrived = processed = packed = 0.0
        for took in transfer:
            arrived += took
            processed = max(arrived, processed) + v
            packed = max(processed, packed) + w
        assert close(row["transfer_ms"], sum(transfer) / len(busy) / 1e6)
        assert close(row["processing_ms"], v / 1e6)
        assert close(row["packing_ms"], w / 1e6)
        assert close(row["busy_slot_ms"], sum(slot["lasted_ns"] for slot in busy) / len(busy) / 1e6)
        assert close(row["overlapped_ms"], packed / len(busy) / 1e6)
        (placed,) = json.loads((truths[name].folder / "run.json").read_text())["placement"]["topologies"].values()
        executors = len(placed["assignments"])
        percent = 100 / (executors * 32e6)
        assert close(row["buffer_percent"], sum(slot["queued_bytes"] for slot in slots) / len(slots) * percent)
        assert close(row["most_buffer_percent"], max(slot["queued_bytes"] for slot in slots) * percent)


def test_time_slots_have_means_over_steps(small_report: Path, truths: Mapping[str, ReferenceTables]) -> None:
    found: dict[str, dict[int, dict[str, str]]] = defaultdict(dict)
    for row in table(small_report, "slot_timeline"):
        found[row["run"]][int(row["second"])] = row
    totals = {row["run"]: row for row in table(small_report, "slots")}
    assert found.keys() == totals.keys()
    for name, steps in found.items():
        start, _ = truths[name].span["", -1]
        slots: dict[int, list[Row]] = defaultdict(list)
        for slot in truths[name].inside("slot"):
            slots[(slot["t_ns"] - start - 1) // NS].append(slot)
        assert list(steps) == [0, 1, 2, 3]
        for second, row in steps.items():
            in_step = slots[second]
            busy = [slot for slot in in_step if slot["parts"]]
            stalled = [slot for slot in in_step if slot["largest_parts"] > 1]
            assert (int(row["slots"]), int(row["stalled_slots"])) == (len(in_step), len(stalled))
            assert stalled
            assert close(row["transfer_ms"], sum(slot["arrived_ns"] for slot in busy) / len(busy) / 1e6)
            assert (row["packing_ms"], row["busy_slot_ms"], row["stall_predicted_ms"]) == ("0.25", "5.0", "2.0")
            share = float(totals[name]["most_buffer_percent"]) / max(
                slot["queued_bytes"] for slot in truths[name].inside("slot")
            )
            assert close(row["most_buffer_percent"], share * max(slot["queued_bytes"] for slot in in_step))
            assert close(row["buffer_percent"], share * sum(slot["queued_bytes"] for slot in in_step) / len(in_step))
        # By the recurrence, a slot ends when the previous one has been processed; the first slots fill the pipeline.
        v = float(totals[name]["processing_ms"])
        assert all(math.isclose(float(steps[second]["overlapped_ms"]), v, rel_tol=1e-3) for second in (1, 2, 3))
        assert float(steps[0]["overlapped_ms"]) > v * 1.001


def test_the_spread_of_parts_over_nodes_is_given_every_five_seconds(
    small_report: Path, truths: Mapping[str, ReferenceTables]
) -> None:
    balance, means = table(small_report, "slot_balance"), table(small_report, "slots")
    assert balance
    for row in means:
        reference = truths[row["run"]]
        bins: dict[int, Counter[str]] = defaultdict(Counter)
        for slot in reference.inside("slot"):
            start, _ = reference.span["", -1]
            second = (slot["t_ns"] - start - 1) // 5_000_000_000 * 5
            for pair in slot["node_parts"].split():
                node, _, parts = pair.partition("=")
                bins[second][node] += int(parts)
        found = {int(each["second"]): each for each in balance if each["run"] == row["run"]}
        assert found.keys() == bins.keys()
        spreads = {second: pstdev(parts.values()) for second, parts in bins.items()}
        for second, each in found.items():
            assert int(each["nodes"]) == 2
            assert close(each["parts_per_node"], sum(bins[second].values()) / 2)
            assert close(each["spread"], spreads[second])
        assert close(row["spread"], sum(spreads.values()) / len(spreads))

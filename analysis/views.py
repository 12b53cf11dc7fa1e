"""One view per workload: the tables of the Spark job arranged for its figures and its part of the page."""

from collections.abc import Iterable, Mapping, Sequence

from analysis.figures.data import Line, NodeUsage, WorkloadData
from analysis.figures.theme import look
from analysis.results import Campaign, Run
from analysis.statistics import spread
from analysis.summary import METRICS, Rows, by_repetition


def workload_data(campaign: Campaign, label: str, tables: Mapping[str, Rows], runs: Rows) -> WorkloadData:
    """Return the data of a workload's figures.

    Args:
        campaign: the campaign.
        label: the workload's label.
        tables: the Spark job's tables.
        runs: rows of `summary.run_rows`.
    """
    counted = [run for run in campaign.counted if run.workload == label]
    repetitions = {s: sum(run.scheduler == s for run in counted) for s in campaign.schedulers}
    # A scheduler has one style in the whole report, so its position in the campaign counts, not in this workload.
    looks = {s: look(at) for at, s in enumerate(campaign.schedulers) if repetitions[s]}
    found = {m.name: {s: by_repetition(runs, label, s, m.name) for s in looks} for m in METRICS}
    values = {m: {s: list(each[s].values()) for s in looks} for m, each in found.items()}
    doubtful = {(run.scheduler, run.repetition) for run in counted if run.suspect}
    scheduler_of = {run.id: run.scheduler for run in counted}
    recoveries: dict[str, list[float]] = {}
    for row in tables["moments"]:
        if row["kind"] == "recovery" and row["run"] in scheduler_of:
            recoveries.setdefault(scheduler_of[row["run"]], []).append(row["second"])
    return WorkloadData(
        label=label,
        looks=looks,
        repetitions={s: repetitions[s] for s in looks},
        warmup_s=max((_warmup_s(run) for run in counted), default=0.0),
        throughput=_lines(
            counted,
            # A rate is drawn in the middle of its step.
            ((row["run"], row["second"] + row["step_s"] / 2, row["sink_tuples_per_s"]) for row in tables["timeline"]),
        ),
        latency=_lines(counted, ((row["run"], row["quantile"], row["latency_ms"]) for row in tables["latency"])),
        samples={(run.scheduler, run.repetition or 0): _samples(run, tables["latency"]) for run in counted},
        values=values,
        spreads={m: {s: spread(v, label, s, m) for s, v in each.items()} for m, each in values.items()},
        placements=_node_usage(counted, list(looks)),
        nodes=campaign.nodes,
        suspect={m: {s: [(s, k) in doubtful for k in each[s]] for s in looks} for m, each in found.items()},
        recoveries=recoveries,
    )


def _warmup_s(run: Run) -> float:
    times = run.times
    return ((times.measure_start_ns or 0) - (times.source_start_ns or 0)) / 1e9


def _lines(runs: Sequence[Run], values: Iterable[tuple[str, float, float | None]]) -> list[Line]:
    """Return one line per run from (run's id, x, y)."""
    points: dict[str, list[tuple[float, float]]] = {}
    for run_id, x, y in values:
        if y is not None:
            points.setdefault(run_id, []).append((x, y))
    return [Line(run.scheduler, run.repetition or 0, sorted(points.get(run.id, [])), bool(run.suspect)) for run in runs]


def _samples(run: Run, rows: Rows) -> int:
    return next((int(row["samples"]) for row in rows if row["run"] == run.id), 0)


def _node_usage(runs: Sequence[Run], schedulers: Sequence[str]) -> list[NodeUsage]:
    """Return distinct placements, by scheduler and then by the first repetition that had them."""
    alike: dict[tuple[str, str], list[Run]] = {}
    for run in sorted(runs, key=lambda run: (schedulers.index(run.scheduler), run.repetition or 0)):
        if run.slots:
            alike.setdefault((run.scheduler, repr(run.slots)), []).append(run)
    found = []
    for (scheduler, _), group in alike.items():
        executors: dict[str, int] = {}
        workers: dict[str, int] = {}
        for (node, _slot), placed in group[0].slots.items():
            executors[node] = executors.get(node, 0) + len(placed)
            workers[node] = workers.get(node, 0) + 1
        found.append(NodeUsage(scheduler, [run.repetition or 0 for run in group], executors, workers, group[0].slots))
    return found

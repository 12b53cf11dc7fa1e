"""Findings of a campaign, arranged for the page and its figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.figures.data import ChangeData
from analysis.figures.palette import Look
from analysis.statistics.intervals import ENOUGH
from analysis.statistics.metrics import Metric, Row, Rows, by_repetition
from analysis.statistics.ranking import HEADINGS, sentences, shown_in_rows


@dataclass(frozen=True)
class Ranked:
    """One scheduler: how it is drawn, runs, suspect and saturated ones, and its row of `ranking` by metric."""

    scheduler: str
    look: Look
    n: int
    suspect: int
    saturated: int
    cells: Mapping[str, Row]


@dataclass(frozen=True)
class WorkloadFinding:
    """One workload.

    Attributes:
        metrics: the shown metrics, those without any value left out.
        ranking: one per scheduler.
        pairs: rows of the table `pairs`.
        without_suspect: row of `pairs` -> the same pair without suspect runs, as a list of (with, without); None if
            no other repetition is left.
        sentences: how schedulers compare with the baseline, with enough repetitions.
        enough: whether every scheduler has enough repetitions for conclusions.
        n: fewest and most repetitions.
    """

    metrics: Sequence[Metric]
    ranking: Sequence[Ranked]
    pairs: Rows
    without_suspect: Sequence[tuple[Row, Row | None]]
    sentences: Sequence[str]
    enough: bool
    n: tuple[int, int]


def finding_of(
    tables: Mapping[str, Rows], workload: str, looks: Mapping[str, Look], baseline: str | None
) -> WorkloadFinding:
    """Arrange one workload.

    Args:
        tables: with `ranking`, `pairs` and, but for reports of earlier versions, `pairs_without_suspect`.
        workload: its label.
        looks: scheduler -> how it is drawn.
        baseline: the scheduler that others are compared with.
    """
    rows = [row for row in tables["ranking"] if row["workload"] == workload]
    pairs = [row for row in tables["pairs"] if row["workload"] == workload]
    clear = [row for row in tables.get("pairs_without_suspect", ()) if row["workload"] == workload]
    same = {(row["scheduler"], row["other"], row["metric"]): row for row in clear}
    ranking = []
    ordered = dict.fromkeys(row["scheduler"] for row in rows)
    for scheduler, look in {s: looks[s] for s in (*ordered, *looks)}.items():
        cells = {row["metric"]: row for row in rows if row["scheduler"] == scheduler}
        most = {
            name: max((row[name] or 0 for row in cells.values()), default=0) for name in ("n", "suspect", "saturated")
        }
        ranking.append(Ranked(scheduler, look, most["n"], most["suspect"], most["saturated"], cells))
    numbers = [each.n for each in ranking] or [0]
    return WorkloadFinding(
        metrics=shown_in_rows(rows),
        ranking=ranking,
        pairs=pairs,
        without_suspect=[
            (row, same.get((row["scheduler"], row["other"], row["metric"]))) for row in pairs if row["suspect"]
        ],
        sentences=sentences(pairs, workload, baseline, clear),
        enough=min(numbers) >= ENOUGH,
        n=(min(numbers), max(numbers)),
    )


def change_data(finding: WorkloadFinding, runs: Rows, workload: str, baseline: str | None) -> ChangeData | None:
    """Return the data of the figure of one workload; None without a baseline, or nothing to compare with it.

    Args:
        finding: of the workload.
        runs: rows of the table `runs`.
        workload: its label.
        baseline: the scheduler that others are compared with.
    """
    others = {each.scheduler: each for each in finding.ranking if each.scheduler != baseline}
    if baseline is None or not others or len(others) == len(finding.ranking):
        return None
    doubtful = {
        (row["scheduler"], row["repetition"])
        for row in runs
        if row["counts"] and row["workload"] == workload and row["suspect"]
    }
    paired: dict[str, dict[str, list[float]]] = {}
    middles: dict[str, dict[str, tuple[float, tuple[float, float] | None]]] = {}
    suspect: dict[str, dict[str, list[bool]]] = {}
    for metric in finding.metrics:
        heading = HEADINGS[metric.name]
        base = by_repetition(runs, workload, baseline, metric.name)
        for of_metric in (paired, middles, suspect):
            of_metric[heading] = {}
        for scheduler, each in others.items():
            row = each.cells.get(metric.name)
            if row is None or row["change_percent"] is None:
                continue
            mine = by_repetition(runs, workload, scheduler, metric.name)
            both = sorted(k for k in mine.keys() & base.keys() if base[k])
            paired[heading][scheduler] = [100 * (mine[k] / base[k] - 1) for k in both]
            ends = (row["change_low"], row["change_high"])
            middles[heading][scheduler] = (row["change_percent"], None if None in ends else ends)
            suspect[heading][scheduler] = [bool({(scheduler, k), (baseline, k)} & doubtful) for k in both]
    return ChangeData({name: each.look for name, each in others.items()}, baseline, paired, middles, suspect)

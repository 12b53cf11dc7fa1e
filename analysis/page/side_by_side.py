"""Several campaigns in one report: differences of set-up first, then metrics and ratios side by side.

index.html
figures/<workload>-found.svg
tables/campaigns.csv, setup.csv, comparison.csv, comparison.md, comparison.tex

Metrics are those of `run.json`, so that no report is needed, and results of different versions are treated alike.
Schedulers are compared with the baseline within a campaign, by its repetitions. Campaigns are not tested against each
other: nothing pairs their repetitions, and machines differ in more than one way.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from analysis.figures.data import ChangeData, quantity
from analysis.figures.palette import look
from analysis.figures.report_figures import CHANGES_CAPTION, draw_changes
from analysis.page.figure_files import slugs
from analysis.page.html import render_template
from analysis.page.print_tables import latex, markdown, write_csv
from analysis.page.setups import setup_rows
from analysis.records.campaign import Campaign, load_campaign
from analysis.statistics.comparison import compare
from analysis.statistics.intervals import ENOUGH, median_interval
from analysis.statistics.metrics import METRICS, Metric, Row, Rows, by_repetition, saturated_count, suspect_count
from analysis.statistics.ranking import HEADINGS, SHOWN
from analysis.tables.summary import recorded_rows
from inventory.atomic_files import replacing_folder
from inventory.errors import InputError
from inventory.foreign import printable
from inventory.own_files import OutputFolder
from inventory.parsing import first_repeated

CAMPAIGN_COLUMNS = (
    *("campaign", "name", "folder", "started_utc", "version", "git_commit", "results_version", "hostname"),
    *("runs", "counted"),
)
COLUMNS = (
    *("workload", "scheduler", "campaign", "metric", "unit", "n", "suspect", "saturated", "median", "low", "high"),
    *("baseline", "ratio", "ratio_low", "ratio_high"),
)

COMPARED: tuple[Metric, ...] = tuple(
    metric
    for metric in METRICS
    if metric.name
    in (
        *("source_tuples_per_s", "sink_tuples_per_s", "latency_p50_ms", "latency_p95_ms", "latency_p99_ms"),
        *("inter_worker_tuples_per_s", "inter_node_tuples_per_s"),
    )
)

COMPARISON = OutputFolder(
    "not a comparison",
    r"index\.html|figures/[^/]+-found\.svg|tables/((campaigns|setup)\.csv|comparison\.(csv|md|tex))",
    "files.txt",
)

Campaigns = Mapping[str, Campaign]
"""C1, C2, ... -> campaign, in the given order."""


def compare_campaigns(folders: Sequence[Path], out: Path) -> tuple[Path, dict[str, Rows]]:
    """Write the comparison into `out`, which is replaced; return the path of its page, and its tables.

    Args:
        folders: each contains `campaign.json`; two or more.
        out: a new folder, or an earlier comparison.

    Raises:
        InputError: a folder is no campaign, is there twice, or has results of an unknown version; `out` is something
            else than a comparison.
        UnfitError: it cannot be written.
    """
    if len(folders) < 2:
        raise InputError("give the folders of at least two campaigns")
    resolved = [folder.resolve() for folder in folders]
    if twice := first_repeated(resolved):
        raise InputError(f"{printable(twice)}: is given twice; a campaign cannot be compared with itself")
    COMPARISON.check(out, "--out ")
    campaigns = {f"C{number}": load_campaign(folder) for number, folder in enumerate(resolved, 1)}
    baseline = common_baseline(campaigns)
    runs = {label: recorded_rows(campaign) for label, campaign in campaigns.items()}
    tables = {
        "campaigns": _campaign_rows(campaigns),
        "setup": setup_rows(campaigns),
        "comparison": campaign_comparison_rows(campaigns, runs, baseline),
    }
    with replacing_folder(out, COMPARISON) as folder:
        (folder / "tables").mkdir()
        (folder / "figures").mkdir()
        columns = {"campaigns": CAMPAIGN_COLUMNS, "setup": ("part", "setting", *campaigns), "comparison": COLUMNS}
        for name, rows in tables.items():
            write_csv(folder / "tables" / f"{name}.csv", columns[name], rows)
        headings, lines = _printed(tables["comparison"])
        (folder / "tables" / "comparison.md").write_text(markdown(headings, lines), encoding="utf-8")
        (folder / "tables" / "comparison.tex").write_text(latex(headings, lines), encoding="utf-8")
        workloads = []
        for workload, slug in slugs(_workloads(tables["comparison"])).items():
            rows = [row for row in tables["comparison"] if row["workload"] == workload]
            svg = _figure(rows, campaigns, runs, workload, slug, baseline)
            if svg:
                (folder / "figures" / f"{slug}-found.svg").write_text(svg, encoding="utf-8")
            metrics = [metric for metric in COMPARED if any(row["metric"] == metric.name for row in rows)]
            workloads.append({"label": workload, "slug": slug, "lines": _lines(rows), "metrics": metrics, "svg": svg})
        page = render_template(
            "compare.html.j2",
            campaigns=campaigns,
            tables=tables,
            workloads=workloads,
            baseline=baseline,
            enough=ENOUGH,
            caption=CHANGES_CAPTION,
        )
        (folder / "index.html").write_text(page, encoding="utf-8")
    return out / "index.html", tables


def common_baseline(campaigns: Campaigns) -> str | None:
    """Return the scheduler that all are compared with: the first campaign's baseline, else the first in common."""
    first = next(iter(campaigns.values()))
    for scheduler in (first.baseline(None), *first.schedulers):
        if all(scheduler in campaign.schedulers for campaign in campaigns.values()):
            return scheduler
    return None


def campaign_comparison_rows(campaigns: Campaigns, runs: Mapping[str, Rows], baseline: str | None) -> Rows:
    """Return a row per workload, scheduler, campaign and metric that has values.

    `low` and `high` are the median's interval from `ENOUGH` repetitions on, and the range below. The ratio to the
    baseline is that within repetitions with its interval, and below `ENOUGH` repetitions that of the medians.
    """
    workloads = dict.fromkeys(w for campaign in campaigns.values() for w in campaign.workloads)
    schedulers = dict.fromkeys(s for campaign in campaigns.values() for s in campaign.schedulers)
    rows = []
    for workload in workloads:
        for scheduler in schedulers:
            for label in campaigns:
                for metric in COMPARED:
                    values = by_repetition(runs[label], workload, scheduler, metric.name)
                    if not values:
                        continue
                    seen = list(values.values())
                    inner = median_interval(seen, label, workload, scheduler, metric.name)
                    rows.append(
                        {
                            "workload": workload,
                            "scheduler": scheduler,
                            "campaign": label,
                            "metric": metric.name,
                            "unit": metric.unit,
                            "n": len(seen),
                            "suspect": suspect_count(runs[label], workload, {scheduler}, values),
                            "saturated": saturated_count(runs[label], workload, {scheduler}, values),
                            "median": median(seen),
                            "low": inner.low if inner else min(seen),
                            "high": inner.high if inner else max(seen),
                            "baseline": baseline,
                            **_ratio(runs[label], workload, scheduler, baseline, metric.name),
                        }
                    )
    return rows


def _ratio(runs: Rows, workload: str, scheduler: str, baseline: str | None, metric: str) -> Row:
    nothing: Row = dict.fromkeys(("ratio", "ratio_low", "ratio_high"))
    if baseline is None or scheduler == baseline:
        return nothing
    values, base = (by_repetition(runs, workload, each, metric) for each in (scheduler, baseline))
    seen = compare(values, base, workload, scheduler, baseline, metric)
    if seen is None:
        return nothing
    if seen.n < ENOUGH or seen.ratio is None:
        return nothing | {"ratio": seen.ratio_estimate}
    return {"ratio": seen.ratio.estimate, "ratio_low": seen.ratio.low, "ratio_high": seen.ratio.high}


def _campaign_rows(campaigns: Campaigns) -> Rows:
    return [
        {
            "campaign": label,
            "name": campaign.name,
            "folder": printable(campaign.folder),
            "started_utc": campaign.file.started_utc,
            "version": campaign.file.version,
            "git_commit": campaign.file.git_commit,
            "results_version": campaign.file.results_version,
            "hostname": campaign.file.host.get("hostname"),
            "runs": len(campaign.runs),
            "counted": len(campaign.counted),
        }
        for label, campaign in campaigns.items()
    ]


def _workloads(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row["workload"] for row in rows))


def _lines(rows: Rows) -> list[Row]:
    """Return one entry per scheduler and campaign, with its rows by metric."""
    lines: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = row["scheduler"], row["campaign"]
        line = lines.setdefault(key, {"scheduler": key[0], "campaign": key[1], "n": 0, "doubts": "", "cells": {}})
        line["n"] = max(line["n"], row["n"])
        doubts = [f"{row[name]} {name}" for name in ("saturated", "suspect") if row[name]]
        line["doubts"] = ", ".join(doubts) or line["doubts"]
        line["cells"][row["metric"]] = row
    return list(lines.values())


def _printed(rows: Rows) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    def ended(value: float | None, low: float | None, high: float | None) -> str:
        words = [None if each is None else quantity(each).replace("-", "−") for each in (value, low, high)]
        ends = "" if None in words[1:] else f" [{words[1]}, {words[2]}]"
        return "" if words[0] is None else f"{words[0]}{ends}"

    return ["workload", "scheduler", "campaign", "metric", "n", "median", "ratio"], [
        [
            *(row["workload"], row["scheduler"], row["campaign"], f"{row['metric']}, {row['unit']}", str(row["n"])),
            ended(row["median"], row["low"], row["high"]),
            ended(row["ratio"], row["ratio_low"], row["ratio_high"]),
        ]
        for row in rows
    ]


def _figure(
    rows: Rows, campaigns: Campaigns, runs: Mapping[str, Rows], workload: str, slug: str, baseline: str | None
) -> str:
    """Return the figure of changes against the baseline, a row per scheduler and campaign; empty without any."""
    shown = [row for row in rows if row["ratio"] is not None and row["metric"] in {metric.name for metric in SHOWN}]
    if baseline is None or not shown:
        return ""
    pairs = dict.fromkeys((row["scheduler"], row["campaign"]) for row in shown)
    at = {label: position for position, label in enumerate(campaigns)}
    paired: dict[str, dict[str, list[float]]] = {}
    middles: dict[str, dict[str, tuple[float, tuple[float, float] | None]]] = {}
    suspect: dict[str, dict[str, list[bool]]] = {}
    for metric in [each for each in SHOWN if any(row["metric"] == each.name for row in shown)]:
        heading = HEADINGS[metric.name]
        paired[heading], middles[heading], suspect[heading] = {}, {}, {}
        for row in (each for each in shown if each["metric"] == metric.name):
            name, label = f"{row['scheduler']} ({row['campaign']})", row["campaign"]
            mine, base = (
                by_repetition(runs[label], workload, each, metric.name) for each in (row["scheduler"], baseline)
            )
            both = sorted(mine.keys() & base.keys())
            paired[heading][name] = [100 * (mine[k] / base[k] - 1) for k in both]
            ends = [None if row[end] is None else 100 * (row[end] - 1) for end in ("ratio_low", "ratio_high")]
            interval = None if ends[0] is None or ends[1] is None else (ends[0], ends[1])
            middles[heading][name] = (100 * (row["ratio"] - 1), interval)
            doubtful = {(r["scheduler"], r["repetition"]) for r in runs[label] if r["counts"] and r["suspect"]}
            suspect[heading][name] = [bool({(row["scheduler"], k), (baseline, k)} & doubtful) for k in both]
    looks = {f"{scheduler} ({label})": look(at[label]) for scheduler, label in pairs}
    return draw_changes(ChangeData(looks, baseline, paired, middles, suspect), slug, workload)

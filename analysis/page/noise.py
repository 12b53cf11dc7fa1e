"""Note on the settings of machines that make figures vary, from the facts of all nodes. It is no reason for doubt."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

from analysis.page.noisy_settings import STEADY, node_names_text, settings_by_machine, settings_text
from analysis.records.campaign import Campaign, Run
from analysis.statistics.comparison import compare
from analysis.statistics.intervals import ENOUGH


def noise_notes(campaign: Campaign) -> list[tuple[str, str]]:
    """Return the note as (subject, sentence), with a part per machine; empty if no machine reported its settings."""
    nodes = [
        (node, campaign.file.host if entry.facts is None else entry.facts)
        for run in campaign.counted
        for node, entry in (run.file.nodes.items() if run.file else ())
    ]
    costs = {name: _cost(campaign, name) or "its cost: see the CPU settings" for name in _varied(campaign.agenda.cpu)}
    parts = [
        f"{node_names_text(names)}: {settings_text(settings, costs)}" for settings, names in settings_by_machine(nodes)
    ]
    return [("Settings", f"{'. '.join(parts)}.")] if parts else []


def _varied(cpu: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> set[str]:
    """Return the settings that the campaign's CPU settings vary, so that its report shows what they cost."""
    if cpu is None or isinstance(cpu, Mapping):
        return set()
    nodes = [entry.get("nodes", {}) for entry in cpu]
    return {
        name
        for name in STEADY
        if len({str({kind: settings.get(name) for kind, settings in each.items()}) for each in nodes}) > 1
    }


def _cost(campaign: Campaign, name: str) -> str:
    """Return what a setting costs, where two CPU settings differ in it alone; empty with too few repetitions."""
    variants = campaign.agenda.cpu
    if variants is None or isinstance(variants, Mapping):
        return ""
    for one, other in combinations(variants, 2):
        if _without(one, name) == _without(other, name) and one["nodes"] != other["nodes"]:
            for workload in dict.fromkeys(run.file.label or run.file.workload for run in campaign.counted if run.file):
                ratios = [_ratio(campaign, workload, other["label"], one["label"], *metric) for metric in _METRICS]
                known = [each for each in ratios if each is not None]
                if len(known) == len(ratios):
                    n, words = known[0][0], ", ".join(text for _, text in known)
                    who = f"{workload} under {campaign.baseline(None)}"
                    return f"cost of {other['label']!r} against {one['label']!r}, {who}: {words}, n = {n}"
    return ""


def _without(variant: Mapping[str, Any], name: str) -> dict[str, dict[str, Any]]:
    """Return the settings of each class of nodes but this one."""
    return {
        kind: {key: value for key, value in settings.items() if key != name}
        for kind, settings in variant["nodes"].items()
    }


def _ratio(
    campaign: Campaign, workload: str, cpu: str, other: str, title: str, of_run: Callable[[Run], float | None]
) -> tuple[int, str] | None:
    """Return repetitions and ratio of a metric of the baseline with two CPU settings; None without an interval."""
    values: dict[str, dict[int, float | None]] = {cpu: {}, other: {}}
    for run in campaign.counted:
        if run.file is None or run.suspect or run.file.factors or run.file.scheduler != campaign.baseline(None):
            continue
        if (run.file.label or run.file.workload) == workload and run.file.cpu_settings in values:
            values[run.file.cpu_settings][run.file.repetition] = of_run(run)
    comparison = compare(values[cpu], values[other], title)
    if comparison is None or comparison.n < ENOUGH or comparison.ratio is None:
        return None
    low, middle, high = (
        f"{value:#.3g}" for value in (comparison.ratio.low, comparison.ratio.estimate, comparison.ratio.high)
    )
    return comparison.n, f"{title} × {middle} [{low}, {high}]"


def _throughput(run: Run) -> float | None:
    return run.file.measured.sink_tuples_per_s if run.file and run.file.measured else None


def _p95(run: Run) -> float | None:
    return run.file.measured.latency_ms.p95 if run.file and run.file.measured else None


_METRICS = (("throughput", _throughput), ("p95 latency", _p95))

"""Outcome of a run as printed lines: its figures, or why it failed."""

from pathlib import Path

from analysis.records.file_types import FINISHED, OK, RunRecord
from campaign.results.live_file import duration_text, ms_in_words
from campaign.results.suspect_runs import doubts_from_recoveries

MISSING = 0.01
"""Share of the samples from which on missing ones are told: then they can change p99."""


def outcome_in_words(title: str, record: RunRecord, took_s: float, folder: Path) -> list[tuple[str, str]]:
    """Return lines, each with its style, on a run that has ended.

    Args:
        title: names the run.
        record: its `run.json`.
        took_s: its duration in seconds.
        folder: folder of its results.
    """
    measured, search = record.measured, record.search
    if record.status not in FINISHED or measured is None:
        return [(f"{title} failed: {record.reason} (in {folder})", "red")]
    latency = measured.latency_ms
    parts = [f"{title} {record.status} in {duration_text(took_s)}"]
    if search is not None and search.tuples_per_s is not None:
        parts.append(f"sustainable rate {search.tuples_per_s:,.6g} tuples/s by {len(search.trials)} trials")
    if measured.throughput_tuples_per_s is not None:
        parts.append(f"{measured.throughput_tuples_per_s:,.0f} tuples/s")
    else:
        parts.append("nothing measured: the input ended in the warm-up")
    if latency.p50 is not None:
        # The 99th percentile is known, too: it is not below the median.
        parts.append(f"p50 {ms_in_words(latency.p50)}, p99 {ms_in_words(latency.p99 or 0.0)}")
    if latency.bound:
        parts.append(f"latencies ± {latency.bound:.2g} ms for the nodes' clocks")
    if measured.saturated:
        parts.append("saturated")
    if latency.censored and latency.censored > MISSING * (latency.samples or 0):
        parts.append(f"{latency.censored:,} samples were not out at the end")
    parts += doubts_from_recoveries(measured.recoveries, measured.incomplete or None)
    lines = [(", ".join(parts), "" if record.status == OK else "yellow")]
    if record.reason:
        lines.append((f"{title}: {record.reason}", "yellow"))
    lines += [(f"suspect: {reason}", "yellow") for reason in record.suspect]
    missing = [profile.reason or "" for profile in record.profiles or () if profile.file is None]
    if missing:
        lines.append((f"profiles missing: {len(missing)}; {', '.join(sorted(set(missing)))}", "yellow"))
    return lines

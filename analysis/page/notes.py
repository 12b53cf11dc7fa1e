"""Notes on trust (saturated runs, bad rows, a full host, rejected connections), and on energy and overhead."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

from analysis.figures.data import quantity
from analysis.page.energy_view import source_summary
from analysis.page.noise import noise_notes
from analysis.records.campaign import Campaign
from analysis.records.descriptions import EVENT_LABELS
from analysis.statistics.metrics import Row, Rows
from analysis.statistics.transient import transient_notes

BUSY_SHARE = 0.85
"""Share of a host's cores in use above which the host counts as full."""

_MOST_NAMED = 6

NO_ENERGY = "no energy source on this host"


def notes_of(campaign: Campaign, tables: Mapping[str, Rows], counted: Rows) -> list[tuple[str, str]]:
    """Return what affects trust in the findings as (subject, sentence); none when no run counts."""
    if not counted:
        return []
    return [
        *_suspect(counted),
        *_not_given(counted),
        ("Sources", _sources(counted)),
        *transient_notes(counted),
        *_quarantined(campaign),
        *clock_notes(campaign),
        *_full_host(campaign, counted),
        *_refused(campaign),
    ]


def measuring_notes(campaign: Campaign, tables: Mapping[str, Rows], counted: Rows) -> list[tuple[str, str]]:
    """Return how it was measured as (subject, sentence); none when no run counts."""
    if not counted:
        return []
    return [
        ("Energy", _energy(tables["energy"], tables["events"])),
        ("Batches", _batches(campaign)),
        ("Cost of measuring", _cost(campaign, tables["events"], counted)),
        *noise_notes(campaign),
    ]


def _batches(campaign: Campaign) -> str:
    """Return how long rows of incomplete batches waited for others, in the runs that count."""
    waits: dict[str, None] = {}
    for run in campaign.counted:
        wait, engine = (run.file.linger_ms, run.file.engine) if run.file else (None, None)
        if wait is None:
            waits["for a time that was not recorded"] = None
        elif not isinstance(wait, str):
            waits[f"for {wait:g} ms"] = None
        elif engine is None:
            waits["as long as the load of workers suggests, up to 2 ms"] = None
        else:
            waits[f"as {engine.name} does by itself"] = None
    return f"rows of incomplete batches waited for others {', or '.join(waits)}."


def observed_events(events: Rows) -> Rows:
    """Return the events that affect trust in the figures, over all runs."""
    entries: dict[tuple[str, str], Row] = {}
    for row in events:
        kind = row["kind"]
        if kind not in EVENT_LABELS:
            continue
        subject = "" if kind == "refused_connection" else row["subject"]
        new: Row = {"kind": kind, "words": EVENT_LABELS[kind], "subject": subject, "times": 0}
        entry = entries.setdefault((kind, subject), new | {"values": [], "details": set()})
        if kind == "refused_connection":
            # The value of a row is a number of connections.
            entry["times"] += round(row["times"] * row["mean_value"])
        else:
            entry["times"] += row["times"]
        if row["mean_value"] is not None and kind != "refused_connection":
            entry["values"].append(row["mean_value"])
        if row["detail"]:
            entry["details"].add(row["detail"])
    return [entries[key] for key in sorted(entries)]


def _energy(energy: Rows, events: Rows) -> str:
    if any(row["joules"] is not None for row in energy):
        return f"{source_summary(energy)}; joules of different sources are not compared with one another."
    absent = {row["detail"] for row in events if row["kind"] == "sensor_absent" and row["subject"] == "power"}
    reasons = sorted(reason for reason in absent if reason and reason != NO_ENERGY)
    of_runs = sorted({row["reason"] for row in energy if row["reason"]})
    return f"{'; '.join(of_runs or [NO_ENERGY, *reasons])}: energy is missing in this report, it is not zero."


def _suspect(counted: Rows) -> list[tuple[str, str]]:
    """Return the note on runs with recoveries or other disturbances."""
    suspect = [f"{row['run']} ({row['suspect']})" for row in counted if row["suspect"]]
    if not suspect:
        return []
    listed = ", ".join(suspect[:_MOST_NAMED]) + (", …" if len(suspect) > _MOST_NAMED else "")
    words = f"{len(suspect)} of {len(counted)} runs, marked in every table and hollow in figures: {listed}."
    return [("Suspect runs", words)]


_OBSERVED = {"traffic": "observed traffic", "load": "observed loads", "hardware": "clock and FLOPs of all nodes"}


def _not_given(counted: Rows) -> list[tuple[str, str]]:
    """Return the note on schedulers that ran without an input that they would use."""
    lacking_of = {row["scheduler"]: row["not_given"].split(", ") for row in counted if row["not_given"]}
    listed = [
        f"{scheduler} would use {', '.join(_OBSERVED.get(what, what) for what in lacking)}"
        for scheduler, lacking in sorted(lacking_of.items())
    ]
    if not listed:
        return []
    words = f"{'; '.join(listed)}: none was given, so these are placements without it, not those it is designed for."
    return [("Not given", words)]


def _sources(counted: Rows) -> str:
    late = [row["run"] for row in counted if row["saturated"]]
    unknown = [row for row in counted if row["saturated"] is None]
    if late:
        names = ", ".join(late[:_MOST_NAMED]) + (", …" if len(late) > _MOST_NAMED else "")
        return (
            f"in {len(late)} of {len(counted)} runs the sources, or the topology behind them, did not keep up with the "
            "schedule (saturated): throughput is then the limit of the sources or of the topology, and latency "
            "includes the wait at the source and in queues, and lacks what was not out at the end, so that these runs "
            f"do not rank schedulers at the requested rate: {names}."
        )
    if unknown:
        others = "" if len(unknown) == len(counted) else "; the others kept theirs"
        few = f"{len(unknown)} of {len(counted)} runs"
        return f"{few} had no schedule to keep, their latency counts from emission{others}."
    worst = max((row["worst_late_ms"] for row in counted if row["worst_late_ms"] is not None), default=None)
    most = f"; the latest tuple left {_ms(worst)} after it was due" if worst is not None else ""
    return f"kept to their schedule in all {len(counted)} runs{most}."


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"


def _cost(campaign: Campaign, events: Rows, counted: Rows) -> str:
    agents = [row["agent_cores"] for row in counted if row["agent_cores"] is not None]
    if not agents:
        return "not known: no CPU sensor worked."
    every = "all" if "nodes" in campaign.agenda.factors else f"all {len(campaign.nodes)}"
    words = f"{every} node agents together used {_between(agents)} cores"
    costs = [row["mean_value"] for row in events if row["kind"] == "sampler_cost" and row["mean_value"] is not None]
    if costs:
        words += f", of which each sample of the sensors took {_between([cost * 1e3 for cost in costs])} ms"
    return f"{words}."


def _between(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2g}", f"{max(values):.2g}"
    return low if low == high else f"{low} to {high}"


def _quarantined(campaign: Campaign) -> list[tuple[str, str]]:
    """Return the note on bad input rows; runs of one label share their input."""
    quarantined = {run.workload: run.file.verification.quarantined for run in campaign.counted if run.file}
    listed = [
        f"of {label}, " + ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in kinds.items() if count)
        for label, kinds in sorted(quarantined.items())
        if any(kinds.values())
    ]
    if not listed:
        return []
    return [
        (
            "Rows left out",
            f"bad rows of the input were used neither in runs nor in references: {'; '.join(listed)}.",
        )
    ]


def _full_host(campaign: Campaign, counted: Rows) -> list[tuple[str, str]]:
    cores = campaign.file.host.get("cores_online")
    full = [row for row in counted if cores and row["host_cores"] and row["host_cores"] > BUSY_SHARE * cores]
    if not full:
        return []
    words = (
        f"in {len(full)} of {len(counted)} runs more than {BUSY_SHARE:.0%} of the host's {cores} cores were in use; "
        "latency there is caused by waiting for a core as much as by the placement."
    )
    return [("Full host", words)]


def _refused(campaign: Campaign) -> list[tuple[str, str]]:
    """Return the note on rejected connections to the data ports."""
    reasons: Counter[str] = Counter()
    runs = 0
    for run in campaign.counted:
        refused = run.file.measured.refused_connections if run.file and run.file.measured else {}
        reasons.update(refused)
        runs += bool(refused)
    if not runs:
        return []
    listed = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    words = (
        f"workers rejected {reasons.total()} connections to their data ports in {runs} of {len(campaign.counted)} "
        f"runs, before any data was read from them ({listed}); a host in this network scans or attacks it."
    )
    return [("Refused connections", words)]


def without_withheld(campaign: Campaign, latency: Rows) -> Rows:
    """Return the table `latency` with None for values that do not exceed the clock error of their run."""
    bounds = {run.id: run.latency_bound_ms or 0.0 for run in campaign.runs}

    def known(run: str, value: float | None) -> float | None:
        bound = bounds.get(run, 0.0)
        return None if value is not None and bound and value <= bound else value

    return [{**row, "latency_ms": known(row["run"], row["latency_ms"])} for row in latency]


def clock_notes(campaign: Campaign) -> list[tuple[str, str]]:
    """Return the note on clock error; empty when all nodes share one clock."""
    bounds = [bound for run in campaign.counted if (bound := run.latency_bound_ms)]
    if not bounds:
        return []
    low, high = f"{min(bounds):.2g}", f"{max(bounds):.2g}"
    between = low if low == high else f"{low} to {high}"
    withheld = sum(
        bool(run.file.measured.latency_ms.withheld) for run in campaign.counted if run.file and run.file.measured
    )
    words = (
        f"nodes have clocks of their own, whose offsets were measured throughout each run: a latency may be off by "
        f"{between} ms (column ± clocks)."
    )
    if withheld:
        runs = f"{withheld} of {len(campaign.counted)} runs"
        words += f" In {runs} some latencies were no larger than that; they are left out."
    return [("Clocks", words)]


WAITED_MUCH, WAITED_LITTLE = 0.5, 0.1
"""Shares of time without credit: from the first on the topology was the limit, up to the second the sources were."""


def saturation_text(runs: Rows, tables: Mapping[str, Rows]) -> str:
    """Return sentences on the saturated runs of one scheduler; empty when none was saturated."""
    late = [row for row in runs if row["saturated"]]
    if not late:
        return ""
    seconds = [row["worst_late_ms"] / 1e3 for row in late if row["worst_late_ms"] is not None]
    facts = [
        _range(late, "due_tuples_per_s", "{} tuples/s were due"),
        _range(late, "source_tuples_per_s", "{} were emitted"),
        f"the latest one {quantity(max(seconds))} s after its time" if seconds else "",
    ]
    words = f"in {len(late)} of {len(runs)} runs the sources, or the topology behind them, fell behind"
    known = ", ".join(fact for fact in facts if fact)
    return f"{words}{': ' if known else ''}{known}. {_limit({row['run'] for row in late}, tables)}".rstrip()


def _limit(runs: set[str], tables: Mapping[str, Rows]) -> str:
    """Return a sentence on what limited the sources of these runs."""
    spouts = {(r["run"], r["component"]): r["executors"] for r in tables["components"] if r["role"] == "spout"}
    waited = [
        row["blocked_executors"] / spouts[row["run"], row["component"]]
        for row in tables["busy"]
        if row["run"] in runs and (row["run"], row["component"]) in spouts and row["blocked_executors"] is not None
    ]
    if not waited:
        return ""
    share = fmean(waited)
    words = f"They waited for the topology {100 * share:.0f} % of the time"
    if share >= WAITED_MUCH:
        return f"{words}: under this placement it took no more."
    if share <= WAITED_LITTLE:
        return f"{words}: the limit was in the sources themselves, whatever the placement of the others."
    return f"{words}."


def _range(runs: Sequence[Mapping[str, float | None]], column: str, words: str) -> str:
    values = [value for row in runs if (value := row[column]) is not None]
    if not values:
        return ""
    low, high = quantity(min(values)), quantity(max(values))
    return words.format(low if low == high else f"{low} to {high}")

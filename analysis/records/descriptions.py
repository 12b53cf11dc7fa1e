"""Descriptions for readers of a report: fidelity of its figures by tier of the cluster, trace tables, events, rates.

Tier 1 is addresses of one host, tier 2 namespaces with emulated links and CPU shares, tier 3 a virtual machine.
Any other cluster consists of real hosts. Columns of trace tables are in docs/reference/traces.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from analysis.records.conditions import LoadRecord
from analysis.records.file_types import RESULTS_VERSION

ReportEngine = Literal["spark", "sail"]
"""Engines that an agenda or a command may name for the report's job."""

NO_SAIL = "got sail, whose server runs Python code for every user of this host; expected spark"
"""Error for both."""

PrimaryMetric = Literal[
    "throughput_tuples_per_s", "latency_ms.p50", "latency_ms.p95", "latency_ms.p99", "latency_ms.max", "hops.inter_node"
]
"""Metrics that may order schedulers, by their names in run.json."""


@dataclass(frozen=True)
class Fidelity:
    """One sentence on the cluster, and what was real, emulated, and absent."""

    cluster: str
    real: tuple[str, ...]
    emulated: tuple[str, ...]
    absent: tuple[str, ...]


_RUNTIME = (
    "The worker processes, their sockets and every byte on them.",
    "The input and the answers: each run's answer is compared with a reference computed by other means.",
    "CPU time, memory and latency, as this host spent them.",
)

FIDELITY = {
    1: Fidelity(
        "One host stands in for all nodes; each node is a process group on an address of its own (loopback, tier 1).",
        _RUNTIME,
        (
            "Nodes: they share the host's cores, memory and clock.",
            "Hardware figures of the cluster (cores, clock, RAM) are declared: schedulers see them, processes do not.",
        ),
        (
            "Network cost: a hop between nodes crosses the loopback device only, without rate limit or delay.",
            "Heterogeneous CPUs: every node is as fast as the host lets it be.",
        ),
    ),
    2: Fidelity(
        "One host stands in for all nodes; each node is a set of namespaces with its own links and CPU share (tier 2).",
        _RUNTIME,
        (
            "Link rates and delays, and CPU and memory limits: the calibration below says what was asked and got.",
            "Hardware figures beyond those limits are declared in the inventory, not measured.",
        ),
        (
            "Isolation of disk, page cache and clock between nodes: they are the host's.",
            "Effects of NUMA, hyper-threads and clock frequency on speed.",
        ),
    ),
    3: Fidelity(
        "The nodes are virtual machines (tier 3).",
        _RUNTIME[:2],
        ("CPU, memory and devices: they are the virtual machine's, and its speed is not a processor's.",),
        ("Performance of real hardware: this tier shows that kernel settings work, not how fast they make anything.",),
    ),
}

ONE_HOST = (1, 2)
"""Tiers in which one host stands in for all nodes."""

REAL_HOSTS = Fidelity("The nodes are real hosts.", _RUNTIME, (), ())


def fidelity_of(tier: object) -> Fidelity:
    """Return the fidelity of runs of this tier."""
    return FIDELITY.get(tier, REAL_HOSTS) if isinstance(tier, int) else REAL_HOSTS


TRACE_TABLES: Mapping[str, str] = {
    "throughput": "tuples that each executor emitted and processed, once a second, and how late its schedule was",
    "channel": "tuples, batches and bytes between each pair of executors, once a second, with the kind of hop",
    "latency": "sampled end-to-end latencies at sinks, once a second, as histogram buckets",
    "executor": "time that each executor was busy and blocked, once a second, and the length of its queue",
    "cpu": "CPU cores in use: per core, worker, agent and node, once a second",
    "memory": "memory of the host, the workers and the agents, once a second",
    "network": "the kernel's counters of each network interface, once a second",
    "power": "energy by domain, every value with its source",
    "energy": "who used the energy of the measured interval, second by second: executors, transport, the rest, idle",
    "event": "what happened when: starts, marks of the measured interval, absent sensors, refused connections",
    "slot": "time slots of runs that follow a communication schedule: what left in each, its stall, and the outboxes",
    "clock": "pairs of readings of a node's monotonic clock and UTC, and the offset between nodes",
}
"""Table -> description of its rows."""

EVENT_LABELS: Mapping[str, str] = {
    "sensor_absent": "a sensor cannot work on this host",
    "sensor_failed": "a sensor's sample is missing",
    "sampler_cost": "CPU seconds that the sampler itself used, per sample",
    "sample_late": "a sample began late, by so many seconds",
    "samples_skipped": "samples left out because their time had passed",
    "power_missing": "a meter says nothing of use: what it meters is missing, not zero",
    "power_cross_check": "two ways to the same energy counters, compared over a minute",
    "power_late": "samples of energy that began late, per second",
    "power_skipped": "samples of energy left out because their time had passed, per second",
    "cpu_throttled": "a processor throttled itself for heat, so many times",
    "cpu_changed": "somebody else changed what CPUs are set to",
    "background_load": "share of all cores that worked for others",
    "refused_connection": "a connection to a worker was turned away",
}
"""Kinds of events that affect trust in the figures -> their description."""

MOMENT_LABELS: Mapping[str, str] = {
    "move": "executor moved",
    "recovery": "recovery",
    "node_lost": "node lost",
    "node_returned": "node back",
    "power_missing": "meter silent",
    "power_back": "meter back",
    "cpu_throttled": "throttled",
    "cpu_changed": "CPU settings changed",
    "background_load": "background load",
}
"""Kinds of events that are marked in the figure of power over time -> their label there."""


def rate_text(rate: Any, load: LoadRecord | None = None) -> str:
    """Return a description of a rate of the agenda, and of the offered load of a run."""
    match rate:
        case {"kind": "constant"} if load is not None:
            share, whole = thin(load.share), thin(load.sustainable_tuples_per_s)
            return f"{thin(load.tuples_per_s)} tuples/s, a load of {share} (1 is {whole} tuples/s under the baseline)"
        case {"kind": "constant", "tuples_per_s": per_s}:
            return f"{thin(per_s)} tuples/s"
        case {"kind": "steps", "steps": steps}:
            return ", ".join(f"{thin(per_s)} tuples/s from {start:g} s" for start, per_s in steps)
        case {"kind": "poisson", "tuples_per_s": per_s}:
            return f"Poisson, {thin(per_s)} tuples/s in the mean"
        case {"kind": "bursts", "on_s": on_s, "off_s": off_s, "tuples_per_s": per_s}:
            pause = thin(rate.get("off_tuples_per_s", 0))
            return f"bursts of {on_s:g} s with {thin(per_s)} tuples/s, {off_s:g} s with {pause} tuples/s between them"
        case {"kind": "sine", "mean_tuples_per_s": mean, "amplitude": share, "period_s": period_s}:
            low, high = (thin(mean * (1 + turn * share)) for turn in (-1, 1))
            return f"a sine from {low} to {high} tuples/s, {period_s:g} s long"
        case {"kind": "replay"}:
            speedup = rate.get("speedup", 1)
            return "as recorded" + (f", {speedup:g} times as fast" if speedup != 1 else "")
        case {"kind": "max"}:
            return "as fast as the topology takes it"
    return one_line(rate) if isinstance(rate, Mapping) else ""


def thin(value: float) -> str:
    """Return a number with thin spaces between thousands."""
    return f"{value:,.10g}".replace(",", "\u202f")


def one_line(value: Any) -> str:
    """Return a value of the agenda on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {one_line(one)}" for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(one_line(one) for one in value)
    return str(value)


def why_unreadable(results_version: int, written_by: str) -> str:
    """Return why results of this version cannot be read; empty if they can.

    Args:
        results_version: as in `campaign.json`.
        written_by: the version of Millrace that wrote them; may be empty.
    """
    if 1 <= results_version <= RESULTS_VERSION:
        return ""
    return (
        f"got {results_version}, but this version of Millrace reads 1 to {RESULTS_VERSION}; "
        f"they were written by version {written_by or 'unknown'}"
    )


def change(percent: float) -> str:
    """Return a relative change with its sign: in per cent, from threefold on as a factor."""
    if percent >= 200:
        return f"×\u202f{1 + percent / 100:.3g}"
    words = f"{abs(percent):.{0 if abs(percent) >= 9.95 else 1}f}"
    sign = "" if not words.strip("0.") else "−" if percent < 0 else "+"
    return f"{sign}{words if sign else 0}\u202f%"


_HOST_LABELS = {
    "hostname": "host",
    "cpu_model": "processor",
    "cores_online": "cores online",
    "memory_bytes": "memory",
    "kernel": "kernel",
    "architecture": "architecture",
    "virtualisation": "virtualisation",
    "python": "Python",
}


def host_facts(host: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what is known of the host as (name, text)."""
    facts_shown = []
    for key, words in _HOST_LABELS.items():
        value = host.get(key)
        if value is not None:
            facts_shown.append((words, f"{value / 2**30:.1f} GiB" if key == "memory_bytes" else str(value)))
    return facts_shown

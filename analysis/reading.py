"""Descriptions of trace tables and events for readers of a report; columns are in docs/reference/traces.md."""

from collections.abc import Mapping

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

"""Energy per tuple, for the whole run and for each kind of hop.

Energy per hop is a convention. The energy of an executor is divided evenly among the tuples that it received; the
energy of a worker outside its executors, which transports tuples, among those that it exchanged with other workers. A
tuple within a worker therefore costs its processing, and one between workers its processing and its transport.
"""

from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from campaign.results.cpu_times import Worker
from campaign.results.energy_table import EnergyTable
from campaign.results.run_metrics import HOPS, Spans, read_table, total, weighted

WITHIN = "intra_worker"


class Delivered:
    """Numbers of tuples that were delivered in the measured interval.

    Attributes:
        to_sinks: tuples to all sinks.
        to_executor: (executor, hop) -> received tuples.
        across: (worker, hop) -> tuples exchanged with other workers.
        by_hop: hop -> all tuples.
    """

    def __init__(self, traces: Path, spans: Spans) -> None:
        """Count the tuples in the table `channel`."""
        roles = read_table(traces, "throughput", "executor", "role")
        sinks = pc.unique(roles.filter(pc.equal(roles["role"], "sink"))["executor"])
        channels = read_table(traces, "channel", "source", "target", "stream", "hop", "target_node", "tuples")
        sent = weighted(channels, ["source", "target", "stream"], spans)
        self.to_sinks = total(sent.filter(pc.is_in(sent["target"], sinks)), "tuples")
        slots = _slots(traces)
        self.to_executor: dict[tuple[str, str], float] = {}
        self.across: dict[tuple[Worker, str], float] = {}
        self.by_hop: dict[str, float] = dict.fromkeys(HOPS, 0.0)
        for row in sent.to_pylist():
            tuples, hop, target = row["tuples"] * row["weight"], row["hop"], row["target"]
            self.by_hop[hop] += tuples
            _add(self.to_executor, (target, hop), tuples)
            if hop != WITHIN:
                _add(self.across, ((row["node"], row["worker"]), hop), tuples)
                slot = slots.get((row["target_node"], target))
                if slot is not None:
                    _add(self.across, ((row["target_node"], slot), hop), tuples)


def per_tuple(tuples: float, joules: float | None, net_joules: float | None) -> dict[str, float | None]:
    """Return gross and net energy per tuple at the sinks; None without tuples or energy."""
    return {
        "tuples": round(tuples),
        "joules_per_tuple": joules / tuples if joules is not None and tuples else None,
        "net_joules_per_tuple": net_joules / tuples if net_joules is not None and tuples else None,
    }


def per_hop(delivered: Delivered, ledger: EnergyTable) -> dict[str, dict[str, Any]]:
    """Return the energy of tuples by kind of hop, by the convention above."""
    shares: dict[str, float] = dict.fromkeys(HOPS, 0.0)
    for (_, executor), used in ledger.executors.items():
        _spread(shares, used, {hop: delivered.to_executor.get((executor, hop), 0.0) for hop in HOPS})
    for worker, used in ledger.transport.items():
        _spread(shares, used, {hop: delivered.across.get((worker, hop), 0.0) for hop in HOPS})
    return {
        hop: {
            "tuples": round(delivered.by_hop[hop]),
            "joules": shares[hop] if delivered.by_hop[hop] else None,
            "joules_per_tuple": shares[hop] / delivered.by_hop[hop] if delivered.by_hop[hop] else None,
        }
        for hop in HOPS
    }


def _slots(traces: Path) -> dict[tuple[str, str], int]:
    """Return (node, executor) -> the last slot of that node in which it ran."""
    rows = read_table(traces, "executor", "executor").sort_by("t_ns")
    found = rows.group_by(["node", "executor"], use_threads=False).aggregate([("worker", "last")]).to_pylist()
    return {(row["node"], row["executor"]): row["worker_last"] for row in found}


def _spread(shares: dict[str, float], joules: float, tuples: dict[str, float]) -> None:
    together = sum(tuples.values())
    for hop, number in tuples.items():
        if together:
            shares[hop] += joules * number / together


def _add(sums: dict[Any, float], key: Any, value: float) -> None:
    sums[key] = sums.get(key, 0.0) + value

"""Energy per tuple: of the whole run, and of each kind of hop.

Energy per hop is a convention. What an executor used is divided evenly among the tuples that it got; what a worker used
outside its executors, which is to carry tuples, among those that it exchanged with other workers. A tuple within a
worker therefore costs its processing, one between workers its processing and its way.
"""

from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from campaign.results.cpu_times import Worker
from campaign.results.energy_table import EnergyTable
from campaign.results.run_metrics import HOPS, Spans, read_table, total, weighted

WITHIN = "intra_worker"


class Delivered:
    """Tuples that were delivered in the measured interval.

    Attributes:
        to_sinks: to all sinks together.
        to_executor: (executor, hop) -> how many it got that way.
        across: (worker, hop) -> how many it sent to, or got from, other workers that way.
        by_hop: hop -> all of them.
    """

    def __init__(self, traces: Path, spans: Spans) -> None:
        """Count them by the table `channel`."""
        roles = read_table(traces, "throughput", "executor", "role")
        sinks = pc.unique(roles.filter(pc.equal(roles["role"], "sink"))["executor"])
        channels = read_table(traces, "channel", "source", "target", "stream", "hop", "target_node", "tuples")
        sent = weighted(channels, ["source", "target", "stream"], spans)
        self.to_sinks = total(sent.filter(pc.is_in(sent["target"], sinks)), "tuples")
        homes = _homes(traces)
        self.to_executor: dict[tuple[str, str], float] = {}
        self.across: dict[tuple[Worker, str], float] = {}
        self.by_hop: dict[str, float] = dict.fromkeys(HOPS, 0.0)
        for row in sent.to_pylist():
            tuples, hop, target = row["tuples"] * row["weight"], row["hop"], row["target"]
            self.by_hop[hop] += tuples
            _add(self.to_executor, (target, hop), tuples)
            if hop != WITHIN:
                _add(self.across, ((row["node"], row["worker"]), hop), tuples)
                home = homes.get((row["target_node"], target))
                if home is not None:
                    _add(self.across, ((row["target_node"], home), hop), tuples)


def per_tuple(tuples: float, joules: float | None, net_joules: float | None) -> dict[str, float | None]:
    """Gross and net energy for each tuple that came to a sink; None when none did, or it is not known."""
    return {
        "tuples": round(tuples),
        "joules_per_tuple": joules / tuples if joules is not None and tuples else None,
        "net_joules_per_tuple": net_joules / tuples if net_joules is not None and tuples else None,
    }


def per_hop(delivered: Delivered, ledger: EnergyTable) -> dict[str, dict[str, Any]]:
    """Energy of the tuples of each kind of hop, by the convention above."""
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


def _homes(traces: Path) -> dict[tuple[str, str], int]:
    """(node, executor) -> the slot of that node in which it ran; of several the last."""
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

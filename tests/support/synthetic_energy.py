"""Energy of synthetic runs: rows of the tables `power` and `energy`, and the energy record of `run.json`.

All nodes are one machine and have the same counters. Power is constant, so that all results can be computed by hand.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NS = 1_000_000_000
MEASURED: Mapping[str, tuple[str, float]] = {"package-0": ("package", 0.9), "dram/package-0": ("dram", 0.1)}
MODELLED: Mapping[str, tuple[str, float]] = {"node": ("platform", 1.0)}
"""Domain -> its role, and its share of the power."""

IDLE = 0.6
"""Share of the power that is drawn without workers."""

CONSUMERS = {"executors": 0.8, "transport": 0.1, "rest": 0.1}
"""Shares of the remaining energy by consumer."""

GAP_NS = 2_450_000_000
"""Time of the missing step after the start of the measured interval, in runs with a gap."""


@dataclass(frozen=True)
class SyntheticEnergy:
    """Energy of one run.

    Attributes:
        watts: power of all domains together.
        seconds: length of the measured interval.
        tuples: tuples that reached sinks in it.
        modelled: whether the power comes from a model.
        gap: whether a step of the package is missing.
    """

    watts: float
    seconds: float
    tuples: int
    modelled: bool = False
    gap: bool = False

    @property
    def source(self) -> str:
        return "model" if self.modelled else "rapl"

    @property
    def domains(self) -> Mapping[str, tuple[str, float]]:
        return MODELLED if self.modelled else MEASURED

    @property
    def flags(self) -> list[str]:
        return ["modelled", "uncalibrated"] if self.modelled else []

    def record(self, nodes: Sequence[str]) -> dict[str, Any]:
        """Return `measured.energy`."""
        if self.gap:
            return self._missing(nodes)
        joules = self.watts * self.seconds
        bound = 0.5 * joules if self.modelled else 0.05
        idle, net = IDLE * joules, (1 - IDLE) * joules
        sums = {name: share * net for name, share in CONSUMERS.items()}
        hops = {
            "intra_worker": _hop(self.tuples // 2, sums["executors"] / 2),
            "inter_worker": _hop(0, 0.0),
            "inter_node": _hop(self.tuples, sums["executors"] / 2 + sums["transport"]),
        }
        both = {"joules": joules, "bound_joules": bound, "idle_joules": idle, "net_joules": net}
        common = both | {"modelled": self.modelled, "flags": self.flags, "reason": None, "why_not_attributed": None}
        domains = [
            {"domain": domain, "role": role, "source": self.source, "in_total": True, "flags": self.flags}
            | {"joules": share * joules, "bound_joules": share * bound, "idle_watts": IDLE * share * self.watts}
            for domain, (role, share) in self.domains.items()
        ]
        return common | {
            "sources": [self.source],
            "tuples": self.tuples,
            "joules_per_tuple": joules / self.tuples,
            "net_joules_per_tuple": net / self.tuples,
            "hops": hops,
            "consumers": {**sums, "idle": idle},
            "machines": [common | {"nodes": list(nodes), "source": self.source, "domains": domains}],
        }

    def _missing(self, nodes: Sequence[str]) -> dict[str, Any]:
        reason = "package-0: a step is missing (reset)"
        nothing = dict.fromkeys(("joules", "bound_joules", "idle_joules", "net_joules"))
        domains = [
            {"domain": domain, "role": role, "source": self.source, "in_total": True, "joules": None, "reason": reason}
            for domain, (role, _) in self.domains.items()
        ]
        common = nothing | {"modelled": self.modelled, "flags": ["reset"], "reason": reason}
        return common | {
            "sources": [self.source],
            "tuples": self.tuples,
            "why_not_attributed": reason,
            "machines": [common | {"nodes": list(nodes), "source": self.source, "domains": domains}],
        }

    def add_power_rows(self, add: Callable[..., None], start: int, measure: int, end: int) -> None:
        """Add one node's rows of the table `power`: ten a second with a phase of their own, and one at each mark."""
        moments = sorted({*range(start - NS // 3, end + NS // 2, NS // 10), measure, end})
        for domain, (role, share) in self.domains.items():
            joules, before = 0.0, moments[0]
            for at in moments:
                step = self.watts * share * (at - before) / NS
                missing = self.gap and domain == "package-0" and before < measure + GAP_NS <= at
                joules += 0.0 if missing else step
                flags = ["first"] * (at == moments[0]) + ["reset"] * missing + self.flags
                counter = (None, None) if self.modelled else (round(1e6 * joules), 1 << 32)
                watts = None if at == moments[0] or missing else self.watts * share
                values = (None if missing else joules, watts, 0.001, 20_000, ",".join(flags), True)
                add("power", at, domain, role, self.source, True, *counter, *values)
                before = at

    def add_energy_rows(
        self,
        writer: Callable[[str, int], Any],
        place: Mapping[str, tuple[str, int]],
        node: str,
        measure: int,
        end: int,
    ) -> None:
        """Add rows of the table `energy`: one step a second."""
        workers = sorted(set(place.values()))
        for since in range(measure, end, NS):
            to = min(since + NS, end)
            for domain, (_, share) in self.domains.items():
                drawn = self.watts * share * (to - since) / NS
                net = (1 - IDLE) * drawn

                def row(where: tuple[str, int], who: str, name: str, cpu_ns: int | None, joules: float) -> None:
                    what = (since, domain, self.source, who, name, cpu_ns, joules, ",".join(self.flags))  # noqa: B023
                    writer(*where).add("energy", to, *what)  # noqa: B023

                for executor, where in place.items():
                    row(where, "executor", executor, 10_000_000, CONSUMERS["executors"] * net / len(place))
                for where in workers:
                    row(where, "transport", "", 2_000_000, CONSUMERS["transport"] * net / len(workers))
                row((node, -1), "rest", "", 50_000_000, CONSUMERS["rest"] * net)
                row((node, -1), "idle", "", None, IDLE * drawn)


def no_meter(node: str, nodes: Sequence[str]) -> dict[str, Any]:
    """Return `measured.energy` of a machine without a meter."""
    reason = f"{node}: no energy source (no zone with an energy counter)"
    machine = {"nodes": list(nodes), "source": None, "modelled": False, "domains": [], "flags": [], "reason": reason}
    return {"joules": None, "reason": reason, "sources": [], "why_not_attributed": reason, "machines": [machine]}


def _hop(tuples: int, joules: float) -> dict[str, Any]:
    return {
        "tuples": tuples,
        "joules": joules if tuples else None,
        "joules_per_tuple": joules / tuples if tuples else None,
    }

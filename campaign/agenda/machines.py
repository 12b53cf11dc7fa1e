"""Machines of a cluster, and their energy: samples of their meters, read from trace rows."""

import ipaddress
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from agents.power.curve import Curve
from agents.power.domain import Domain, Role
from agents.power.energy import Energy, energy
from agents.power.series import Sample, edge_joules

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Machine:
    """A machine of the cluster.

    Attributes:
        nodes: nodes on this machine; the meters of the first are used.
        is_this_host: whether the nodes are processes of this host.
    """

    nodes: tuple[str, ...]
    is_this_host: bool = False

    @property
    def metered(self) -> str:
        """The node whose trace rows describe the machine."""
        return self.nodes[0]


def machines_of(addresses: Mapping[str, str], here: Collection[str] = ()) -> list[Machine]:
    """Return the machines of nodes; nodes that are processes of this host share one.

    Args:
        addresses: node -> its data address.
        here: nodes that are processes of this host although their addresses are not loopback addresses.
    """
    ours = tuple(
        sorted(n for n, address in addresses.items() if n in here or ipaddress.ip_address(address).is_loopback)
    )
    return [Machine(ours, True)] * bool(ours) + [Machine((node,)) for node in sorted(addresses.keys() - set(ours))]


@dataclass(frozen=True)
class Metered:
    """Energy of one domain in an interval.

    Attributes:
        domain: the power domain.
        energy: energy in the interval.
        curve: joules since the first row; meaningful if `energy` is known.
    """

    domain: Domain
    energy: Energy
    curve: Curve


def metered(power: "pa.Table", node: str, start_ns: int, end_ns: int) -> list[Metered]:
    """Return all domains of a node, from its rows of table `power`, for an interval in the node's time."""
    # Reading an agenda imports this module, and must not load pyarrow.
    import pyarrow.compute as pc

    rows = power.filter(pc.equal(power["node"], node)).sort_by("t_ns").to_pylist()
    series: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        series.setdefault((row["domain"], row["source"]), []).append(row)
    return [_metered(each, start_ns, end_ns) for each in series.values()]


def _metered(rows: Sequence[Mapping[str, Any]], start_ns: int, end_ns: int) -> Metered:
    samples = samples_of(rows)
    points = [(sample.t_ns, sample.known_joules) for sample in samples]
    return Metered(samples[0].domain, energy(samples, start_ns, end_ns), Curve(points))


def samples_of(rows: Iterable[Mapping[str, Any]]) -> list[Sample]:
    """Return the samples behind the rows of one domain, limited to what energy needs.

    A restarted agent begins a new series; the energy in between is a missing step.
    """
    samples: list[Sample] = []
    domain: Domain | None = None
    base = known = drift = 0.0
    for row in rows:
        domain = domain or _domain(row)
        flags = tuple(filter(None, row["flags"].split(",")))
        watts, joules = row["watts"], row["joules"]
        if "first" in flags and samples:
            base, joules, flags = known, None, (*flags, "reset")
        elif joules is not None:
            joules += base
            known = joules
            drift = row["bound_joules"] - edge_joules(domain, row["t_half_ns"], watts or 0.0)
        samples.append(
            Sample(domain, row["t_ns"], row["t_half_ns"], row["raw"], joules, known, watts, drift, 0.0, flags, "")
        )
    return samples


def _domain(first: Mapping[str, Any]) -> Domain:
    # The only uncertainty of a counter's first row is the resolution of the counter.
    unit = None if first["raw"] is None else first["bound_joules"]
    return Domain(
        first["domain"],
        cast("Role", first["role"]),
        first["source"],
        "",
        first["in_total"],
        joules_per_count=unit,
        unit=None if unit is None else 1.0,
        flags=tuple(flag for flag in ("modelled", "uncalibrated") if flag in first["flags"].split(",")),
    )

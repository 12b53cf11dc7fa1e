"""Traffic and loads that follow from rates, selectivities and costs, before anything has run.

Every spout executor emits an equal part of the rate. An executor emits its input times the selectivity of its
component; groupings divide that among the executors of each subscriber. Load is input times cost. Spouts whose cost is
not known have no load here, and what the runtime itself costs is not included.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from workloads.key_groups import first_owners, key_group
from workloads.topology import ACKER, Component, Input, Topology
from workloads.traffic import Edge, Traffic

DERIVED = "derived"
"""Mark of traffic that was not measured."""

POINTS_PER_US = 1e-4
"""CPU points of one microsecond per second."""


class TupleCost(NamedTuple):
    """Cost of a component.

    Attributes:
        cost_us: CPU per tuple that it processes, in microseconds; None: not known.
        selectivity: tuples that it emits per tuple that it processes; 1 for a spout.
        tuple_bytes: bytes of a tuple that it emits; None: not known.
    """

    cost_us: float | None
    selectivity: float = 1.0
    tuple_bytes: float | None = None


@runtime_checkable
class DeclaresCosts(Protocol):
    """A workload whose costs are known before it runs."""

    def costs(self) -> Mapping[str, TupleCost]:
        """Return component -> its cost."""
        ...

    def key_shares(self) -> Mapping[int, float]:
        """Return value of the key -> its share of all tuples."""
        ...


def derived_traffic(
    topology: Topology, tuples_per_s: float, costs: Mapping[str, TupleCost], keys: Mapping[int, float]
) -> Traffic:
    """Return the rates of all executor pairs and the loads of all executors with a known cost.

    Args:
        topology: a topology without cycles.
        tuples_per_s: rate of all spout executors together.
        costs: component -> its cost.
        keys: value of the key of a fields grouping -> its share of all tuples.
    """
    components = [topology.component[name] for name in topology.order if name != ACKER]
    spouts = sum(component.parallelism for component in components if component.kind == "spout")
    arriving = {
        component.id: [tuples_per_s / spouts if component.kind == "spout" else 0.0] * component.parallelism
        for component in components
    }
    shares = _by_executor(keys)
    edges: dict[tuple[str, str], Edge] = {}
    load: dict[str, float] = {}
    for component in components:
        cost = costs[component.id]
        for at, rate in enumerate(arriving[component.id]):
            if cost.cost_us is not None:
                load[f"{component.id}[{at}]"] = rate * cost.cost_us * POINTS_PER_US
        for reader, entry in _readers(topology, component):
            parts = _parts(entry, reader.parallelism, shares)
            for at, rate in enumerate(arriving[component.id]):
                for to, part in enumerate(parts):
                    sent = rate * cost.selectivity * part
                    arriving[reader.id][to] += sent
                    pair = f"{component.id}[{at}]", f"{reader.id}[{to}]"
                    before = edges[pair].tuples_per_s if pair in edges else 0.0
                    total = before + sent
                    edges[pair] = Edge(*pair, total, total * (cost.tuple_bytes or 0.0))
    return Traffic(tuple(edge for edge in edges.values() if edge.tuples_per_s), load)


def _readers(topology: Topology, component: Component) -> Sequence[tuple[Component, Input]]:
    return [(reader, entry) for source, reader, entry in topology.links() if source.id == component.id]


def _by_executor(keys: Mapping[int, float]) -> Callable[[int], Sequence[float]]:
    """Return a function from a number of executors to the share of tuples that each gets by their keys."""
    total = sum(keys.values())
    groups: dict[int, float] = {}
    for key, share in keys.items():
        group = key_group((key,))
        groups[group] = groups.get(group, 0.0) + share / total

    def shares(executors: int) -> Sequence[float]:
        owners, parts = first_owners(executors), [0.0] * executors
        for group, share in groups.items():
            parts[owners[group]] += share
        return parts

    return shares


def _parts(entry: Input, executors: int, shares: Callable[[int], Sequence[float]]) -> Sequence[float]:
    """Return what each executor of a subscriber gets of a tuple."""
    if entry.grouping == "fields":
        return shares(executors)
    if entry.grouping == "all":
        return [1.0] * executors
    if entry.grouping == "global":
        return [1.0] + [0.0] * (executors - 1)
    return [1.0 / executors] * executors  # a local grouping is not known before there is a placement

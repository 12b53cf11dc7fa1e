"""A workload of an agenda: its topology, as schedulers see it and as it runs, its parameters and its rate."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agents.protocol import Slot
from campaign.agenda.acks import check_acknowledging
from campaign.agenda.agenda import WorkloadEntry
from campaign.agenda.demands import with_demands
from inventory.documents import Located, Origin
from inventory.errors import InputError
from inventory.plugins import as_plain
from workloads.acks import tracked, tracked_places
from workloads.derived_traffic import DeclaresCosts, derived_traffic
from workloads.operators import Bolt
from workloads.rates import Constant, Rate
from workloads.scaling import spouts_of, why_fixed
from workloads.source_clock import check_rate
from workloads.topology import ACKER, Topology
from workloads.traffic import Traffic
from workloads.workload import Workload, uses_columns, workload_of


@dataclass(frozen=True)
class Application:
    """A workload of the agenda with all its parameters, its topology, its rate and its origin.

    With `acks` its runs have acknowledgements, which schedulers do not see in its topology.
    """

    label: str
    name: str
    workload: Workload
    params: Mapping[str, Any]
    topology: Topology
    rate: Rate
    origin: Origin
    acks: bool = False

    @cached_property
    def running(self) -> Topology:
        """The topology as it runs."""
        return tracked(self.topology) if self.acks else self.topology

    def running_places(self, places: Mapping[str, Slot]) -> Mapping[str, Slot]:
        """Return the places of the topology as it runs, given those of a placement."""
        return tracked_places(self.topology, places) if self.acks else places

    @cached_property
    def tables(self) -> Mapping[str, Mapping[str, str]]:
        """Tables of the answer and their fields, as declared by the topology's bolts."""
        bolts = (self.workload.operator(c.id) for c in self.topology.components if c.kind == "bolt" and c.id != ACKER)
        tables = (table for bolt in bolts if isinstance(bolt, Bolt) for table in bolt.tables())
        return {table.answer_table: table.answer_schema for table in tables}

    @cached_property
    def derived(self) -> Traffic | None:
        """Traffic and loads by rate, selectivities and costs; None: the workload or the rate does not tell them.

        Where a rate changes, its peak counts.
        """
        rate = self.rate
        if not isinstance(self.workload, DeclaresCosts) or (isinstance(rate, Constant) and rate.tuples_per_s is None):
            return None
        if rate.peak_per_s is None:
            return None
        return derived_traffic(self.topology, rate.peak_per_s, self.workload.costs(), self.workload.key_shares())

    @cached_property
    def columns(self) -> bool:
        """Return whether operators process columns."""
        return uses_columns(self.workload, self.topology)

    @cached_property
    def fixed(self) -> Mapping[str, str]:
        """Components whose number of executors cannot change -> why."""
        reasons = {}
        spouts = spouts_of(self.topology)
        for component in self.topology.components:
            works = component.inputs or component.kind == "spout"
            reason = why_fixed(component, self.workload.operator(component.id) if works else None, spouts)
            if reason:
                reasons[component.id] = reason
        return reasons


def application_of(located: Located[WorkloadEntry], label: str, acks: bool) -> Application:
    """Return the workload of an entry of the agenda.

    Args:
        located: the entry.
        label: its label.
        acks: whether its runs have acknowledgements.

    Raises:
        InputError: a parameter, demand or rate is invalid, or its rows cannot be acknowledged.
    """
    entry, origin = located.value, located.origin
    try:
        workload = workload_of(entry.name, *([origin / "params"] if entry.params is not None else []))
        topology = with_demands(workload.topology(), entry.demands, entry.worker_max_heap_mb, origin)
    except InputError as fault:
        # Errors about combinations of values have no place in the file yet.
        if str(fault).startswith(origin.source):
            raise
        raise origin.error(str(fault)) from None
    try:
        check_rate(entry.rate, workload)
    except InputError as fault:
        raise (origin / "rate").error(str(fault)) from None
    if acks:
        check_acknowledging(label, workload, topology, origin)
    return Application(label, entry.name, workload, as_plain(workload.params), topology, entry.rate, origin, acks)

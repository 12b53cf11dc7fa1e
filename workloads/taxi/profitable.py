"""Profitable areas (DEBS 2015 query 2): the ten most valuable areas for a taxi that seeks its next trip.

    parse (trips) -- shuffle --> amount -- fields (start) -----> profit -- fields (cell) --> value -- global --> merge
                                        -- fields (medallion) -> taxi   -- fields (cell) -->
                                        -- global ---> log

Snapshots take the upper paths, the log of changes the last one; only the requested paths exist.
"""

from collections.abc import Mapping
from typing import ClassVar

from workloads.operators import Operator
from workloads.recordings.grid import CELLS_250_M
from workloads.taxi.query import TaxiQuery
from workloads.taxi.rides import Amount, Log, Merge, Profit, Taxi, Value
from workloads.taxi.trips import PaidTrips, TaxiParams
from workloads.topology import DEFAULT_STREAM, Component, Input, Topology

_BOLTS: Mapping[str, type[Operator]] = {
    "amount": Amount,
    "profit": Profit,
    "taxi": Taxi,
    "value": Value,
    "merge": Merge,
    "log": Log,
}


class ProfitableParams(TaxiParams):
    """Parameters of `taxi-profit`."""

    defaults: ClassVar = {"parse": 16, "amount": 16, "profit": 8, "taxi": 8, "value": 4, "merge": 1, "log": 1}


class TaxiProfit(TaxiQuery):
    """See the module."""

    name = "taxi-profit"
    summary = "taxi trips to the ten areas of the highest profit per empty taxi (DEBS 2015 query 2)"
    paper = "DEBS 2015 grand challenge, query 2"
    Params = ProfitableParams
    grid = CELLS_250_M
    plain = "workloads.taxi.area_reference"

    def topology(self) -> Topology:
        """Return the topology with paths to snapshots and to the log."""
        params, size = self.params, self.params.parallelism

        def bolt(name: str, made: type[Amount | Profit | Taxi | Value], *inputs: Input) -> Component:
            return Component(name, "bolt", size[name], outputs={DEFAULT_STREAM: made.fields}, inputs=inputs)

        components = [
            Component("parse", "spout", size["parse"], outputs={DEFAULT_STREAM: PaidTrips.fields}),
            bolt("amount", Amount, Input("parse", "shuffle")),
        ]
        if params.snapshots:
            components += [
                bolt("profit", Profit, Input("amount", "fields", ("start",))),
                bolt("taxi", Taxi, Input("amount", "fields", ("medallion",))),
                bolt("value", Value, Input("profit", "fields", ("cell",)), Input("taxi", "fields", ("cell",))),
                Component("merge", "bolt", size["merge"], inputs=(Input("value", "global"),)),
            ]
        if params.changes:
            components.append(Component("log", "bolt", size["log"], inputs=(Input("amount", "global"),)))
        return Topology(id=self.name, workers=params.workers, components=tuple(components))

    def operator(self, component: str) -> Operator:
        """Return a new operator of one of the components."""
        return PaidTrips(self.params.tick_ns, self.grid) if component == "parse" else _BOLTS[component]()

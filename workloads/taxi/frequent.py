"""Frequent routes (DEBS 2015 query 1): the ten most frequent routes of the last half hour.

    parse (trips) -- shuffle --> route -- fields (route) --> count -- fields (route) --> rank -- global --> merge
                                       -- global ----------> log

Snapshots take the upper path, the log of changes the lower one; only the requested path exists.
"""

from collections.abc import Mapping
from typing import ClassVar

from workloads.operators import Operator
from workloads.recordings.grid import CELLS_500_M
from workloads.taxi.query import TaxiQuery
from workloads.taxi.routes import Count, Log, Merge, Rank, Route
from workloads.taxi.trips import TaxiParams, Trips
from workloads.topology import DEFAULT_STREAM, Component, Input, Topology

_BOLTS: Mapping[str, type[Operator]] = {"route": Route, "count": Count, "rank": Rank, "merge": Merge, "log": Log}


class FrequentParams(TaxiParams):
    """Parameters of `taxi`."""

    defaults: ClassVar = {"parse": 16, "route": 16, "count": 8, "rank": 4, "merge": 1, "log": 1}


class Taxi(TaxiQuery):
    """See the module."""

    name = "taxi"
    summary = "taxi trips to the ten most frequent routes of the last half hour (DEBS 2015 query 1)"
    paper = "DEBS 2015 grand challenge, query 1, as in Eskandari, Mair, Huang, Eyers: I-Scheduler, 2020"
    Params = FrequentParams
    grid = CELLS_500_M
    plain = "workloads.taxi.route_reference"

    def topology(self) -> Topology:
        """Return the topology with paths to snapshots and to the log."""
        params, size = self.params, self.params.parallelism
        routes = {DEFAULT_STREAM: Route.fields}
        components = [
            Component("parse", "spout", size["parse"], outputs={DEFAULT_STREAM: Trips.fields}),
            Component("route", "bolt", size["route"], outputs=routes, inputs=(Input("parse", "shuffle"),)),
        ]
        if params.snapshots:
            counted = {DEFAULT_STREAM: Count.fields}
            by_route = [(Input(source, "fields", ("route",)),) for source in ("route", "count")]
            components += [
                Component("count", "bolt", size["count"], outputs=counted, inputs=by_route[0]),
                Component("rank", "bolt", size["rank"], outputs=counted, inputs=by_route[1]),
                Component("merge", "bolt", size["merge"], inputs=(Input("rank", "global"),)),
            ]
        if params.changes:
            components.append(Component("log", "bolt", size["log"], inputs=(Input("route", "global"),)))
        return Topology(id=self.name, workers=params.workers, components=tuple(components))

    def operator(self, component: str) -> Operator:
        """Return a new operator of one of the components."""
        return Trips(self.params.tick_ns, self.grid) if component == "parse" else _BOLTS[component]()

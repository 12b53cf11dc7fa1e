"""Both queries of DEBS 2015 as workloads: trips on a grid, topology, and reference.

Snapshots take the upper paths of a topology, the log of changes the last one; only the requested paths exist.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from inventory.times import NS
from workloads.operators import Operator
from workloads.recordings.schema import CELLS_250_M, CELLS_500_M, Grid
from workloads.taxi import rides, routes
from workloads.taxi.layout import CHANGES, SNAPSHOTS, same
from workloads.taxi.trips import PaidTrips, TaxiParams, Trips, prepare_trips
from workloads.topology import DEFAULT_STREAM, Component, Input, Topology
from workloads.workload import Answer, PreparedInput, Verdict


class TaxiQuery:
    """The part of a workload that does not depend on its query.

    Attributes:
        grid: grid that must contain both ends of a trip.
        plain: module of the reference, which nodes need not import.
        spout: class of the component `parse`.
        bolts: classes of the other components.
    """

    grid: ClassVar[Grid]
    plain: ClassVar[str]
    spout: ClassVar[type[Trips]]
    bolts: ClassVar[Mapping[str, type[Operator]]]

    def __init__(self, params: TaxiParams) -> None:
        self.params = params

    def operator(self, component: str) -> Operator:
        """Return a new operator of one of the components."""
        spout, bolts = self.spout, self.bolts
        if self.params.api == "columns":
            from workloads.taxi import columns

            spout, by_columns = columns.OPERATORS[spout]
            bolts = {**bolts, **by_columns}
        return spout(self.params.tick_ns, self.grid) if component == "parse" else bolts[component]()

    def prepare(self, folder: Path) -> Sequence[PreparedInput]:
        """Prepare the trips with both ends on the grid."""
        return [prepare_trips(self.params, self.grid, folder)]

    def reference(self, positions: Sequence[int], inputs: Sequence[PreparedInput]) -> Answer:
        """Return both tables, computed from the emitted trips."""
        from workloads.recordings.recording import Recording, emitted

        plain: Any = import_module(self.plain)
        path = inputs[0].path
        answer: dict[str, Sequence[tuple[object, ...]]] = {}
        if self.params.snapshots:
            first_s = -(-Recording(path).origin_ns // NS)
            tables = emitted(path, positions, plain.COLUMNS)
            answer[SNAPSHOTS] = list(plain.snapshots(tables, self.grid, self.params.period_s, first_s))
        if self.params.changes:
            answer[CHANGES] = list(plain.changes(emitted(path, positions, plain.COLUMNS), self.grid))
        return answer

    def compare(self, answer: Answer, reference: Answer) -> Verdict:
        """Compare row by row, ignoring the delays of changes."""
        return same(answer, reference)


class FrequentParams(TaxiParams):
    """Parameters of `taxi`."""

    defaults: ClassVar = {"parse": 16, "route": 16, "count": 8, "rank": 4, "merge": 1, "log": 1}


class Taxi(TaxiQuery):
    """Frequent routes (query 1): the ten most frequent routes of the last half hour.

    parse (trips) -- shuffle --> route -- fields (route) --> count -- fields (route) --> rank -- global --> merge
                                       -- global ----------> log
    """

    name = "taxi"
    summary = "taxi trips to the ten most frequent routes of the last half hour (DEBS 2015 query 1)"
    paper = "DEBS 2015 grand challenge, query 1, as in Eskandari, Mair, Huang, Eyers: I-Scheduler, 2020"
    Params = FrequentParams
    grid = CELLS_500_M
    plain = "workloads.taxi.route_reference"
    spout = Trips
    bolts: ClassVar = {
        "route": routes.Route,
        "count": routes.CountRoutes,
        "rank": routes.RankRoutes,
        "merge": routes.MergeRoutes,
        "log": routes.RouteLog,
    }

    def topology(self) -> Topology:
        """Return the topology with paths to snapshots and to the log."""
        params, size = self.params, self.params.parallelism
        named = {DEFAULT_STREAM: routes.Route.fields}
        components = [
            Component("parse", "spout", size["parse"], outputs={DEFAULT_STREAM: Trips.fields}),
            Component("route", "bolt", size["route"], outputs=named, inputs=(Input("parse", "shuffle"),)),
        ]
        if params.snapshots:
            counted = {DEFAULT_STREAM: routes.CountRoutes.fields}
            by_route = [(Input(source, "fields", ("route",)),) for source in ("route", "count")]
            components += [
                Component("count", "bolt", size["count"], outputs=counted, inputs=by_route[0]),
                Component("rank", "bolt", size["rank"], outputs=counted, inputs=by_route[1]),
                Component("merge", "bolt", size["merge"], inputs=(Input("rank", "global"),)),
            ]
        if params.changes:
            components.append(Component("log", "bolt", size["log"], inputs=(Input("route", "global"),)))
        return Topology(id=self.name, workers=params.workers, components=tuple(components))


class ProfitableParams(TaxiParams):
    """Parameters of `taxi-profit`."""

    defaults: ClassVar = {"parse": 16, "amount": 16, "profit": 8, "taxi": 8, "value": 4, "merge": 1, "log": 1}


class TaxiProfit(TaxiQuery):
    """Profitable areas (query 2): the ten most valuable areas for a taxi that seeks its next trip.

    parse (trips) -- shuffle --> amount -- fields (start) -----> profit -- fields (cell) --> value -- global --> merge
                                        -- fields (medallion) -> taxi   -- fields (cell) -->
                                        -- global ---> log
    """

    name = "taxi-profit"
    summary = "taxi trips to the ten areas of the highest profit per empty taxi (DEBS 2015 query 2)"
    paper = "DEBS 2015 grand challenge, query 2"
    Params = ProfitableParams
    grid = CELLS_250_M
    plain = "workloads.taxi.area_reference"
    spout = PaidTrips
    bolts: ClassVar = {
        "amount": rides.TripAmounts,
        "profit": rides.Profit,
        "taxi": rides.TaxiPositions,
        "value": rides.Value,
        "merge": rides.MergeAreas,
        "log": rides.AreaLog,
    }

    def topology(self) -> Topology:
        """Return the topology with paths to snapshots and to the log."""
        params, size = self.params, self.params.parallelism

        def bolt(name: str, *inputs: Input) -> Component:
            bolt: Any = self.bolts[name]
            return Component(name, "bolt", size[name], outputs={DEFAULT_STREAM: bolt.fields}, inputs=inputs)

        components = [
            Component("parse", "spout", size["parse"], outputs={DEFAULT_STREAM: PaidTrips.fields}),
            bolt("amount", Input("parse", "shuffle")),
        ]
        if params.snapshots:
            components += [
                bolt("profit", Input("amount", "fields", ("start",))),
                bolt("taxi", Input("amount", "fields", ("medallion",))),
                bolt("value", Input("profit", "fields", ("cell",)), Input("taxi", "fields", ("cell",))),
                Component("merge", "bolt", size["merge"], inputs=(Input("value", "global"),)),
            ]
        if params.changes:
            components.append(Component("log", "bolt", size["log"], inputs=(Input("amount", "global"),)))
        return Topology(id=self.name, workers=params.workers, components=tuple(components))

"""Profitable areas (DEBS 2015 query 2): the ten areas that are worth most to a taxi that looks for its next trip.

    parse (trips) -- shuffle --> amount -- fields (start) -----> profit -- fields (cell) --> value -- global --> merge
                                        -- fields (medallion) -> taxi   -- fields (cell) -->
                                        -- global ---> log

Snapshots go the upper ways, the log of changes the last one; only what is asked for is there.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from workloads.operators import Operator
from workloads.rates import NS
from workloads.recordings.grid import CELLS_250_M
from workloads.taxi.layout import CHANGES, SNAPSHOTS, same
from workloads.taxi.rides import Amount, Log, Merge, Profit, Taxi, Value
from workloads.taxi.trips import PaidTrips, TaxiParams, prepare_trips
from workloads.topology import DEFAULT_STREAM, Component, Input, Topology
from workloads.workload import Answer, PreparedInput, Verdict

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


class TaxiProfit:
    """See the module."""

    name = "taxi-profit"
    summary = "taxi trips to the ten areas of the highest profit per empty taxi (DEBS 2015 query 2)"
    paper = "DEBS 2015 grand challenge, query 2"
    Params = ProfitableParams

    def __init__(self, params: ProfitableParams) -> None:
        self.params = params

    def topology(self) -> Topology:
        """Two ways from the amounts: to snapshots, and to the log."""
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
        """A new operator of one of the components."""
        return PaidTrips(self.params.tick_ns, CELLS_250_M) if component == "parse" else _BOLTS[component]()

    def prepare(self, folder: Path) -> Sequence[PreparedInput]:
        """Trips with both ends on the grid of 250 m."""
        return [prepare_trips(self.params, CELLS_250_M, folder)]

    def reference(self, positions: Sequence[int], inputs: Sequence[PreparedInput]) -> Answer:
        """Both tables, from the trips that were emitted."""
        from workloads.recordings.emitted import emitted
        from workloads.recordings.recording import Recording
        from workloads.taxi import area_reference as plain

        path = inputs[0].path
        answer: dict[str, Sequence[tuple[object, ...]]] = {}
        if self.params.snapshots:
            first_s = -(-Recording(path).origin_ns // NS)
            tables = emitted(path, positions, plain.COLUMNS)
            answer[SNAPSHOTS] = list(plain.snapshots(tables, CELLS_250_M, self.params.period_s, first_s))
        if self.params.changes:
            answer[CHANGES] = list(plain.changes(emitted(path, positions, plain.COLUMNS), CELLS_250_M))
        return answer

    def compare(self, answer: Answer, reference: Answer) -> Verdict:
        """Row by row; how long a change took is no part of it."""
        return same(answer, reference)

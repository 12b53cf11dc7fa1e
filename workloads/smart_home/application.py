"""Load prediction in smart homes, on the data of the DEBS 2014 grand challenge (query 1).

    source -- fields (house) --> house -- shuffle --> sink
           -- fields (plug)  --> plug  -- shuffle -->

Every source executor reads its share of the recording; ticks every 30 s of stream time make houses and plugs predict.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose
from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Meta

from inventory.times import NS
from workloads.columns import Api
from workloads.operators import Operator, Row
from workloads.recordings.recording import RecordedSpout
from workloads.recordings.schema import DEBS2014
from workloads.smart_home.loads import READING, TABLES, WORK_READING, HouseLoads, LoadPredictor, PredictionSink
from workloads.smart_home.query import TICK_S, QueryParams
from workloads.topology import DEFAULT_STREAM, Component, Input, Topology
from workloads.workload import Answer, PreparedInput, Verdict, filled, rows_differ

GENERATED_ROWS, GENERATED_SEED = 1_000_000, 1
"""Size of the generated default input: about nine minutes."""

RELATIVE, ABSOLUTE = 1e-9, 1e-6
"""Tolerance for equal loads, since sums are taken in different orders."""


@dataclass(frozen=True)
class SmartHomeParams(QueryParams):
    """Parameters of `smart-home`, besides those of the query, see `QueryParams`.

    Attributes:
        input: a file in the schema of DEBS 2014 (also `.gz` or prepared Parquet) or a folder of them; empty: generated.
        parallelism: executors per component; components left out keep their default.
        workers: requested slots.
        api: interface of the operators; answers are the same.
    """

    input: str = ""
    parallelism: Mapping[str, int] = field(default_factory=dict)
    workers: Annotated[int, Meta(ge=1)] = 5
    api: Api = "rows"

    defaults: ClassVar[Mapping[str, int]] = {"source": 10, "house": 10, "plug": 10, "sink": 10}

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "parallelism", filled(self.parallelism, self.defaults))


class Readings(RecordedSpout):
    """Readings of load and of work."""

    columns = tuple(READING)


class WorkReadings(RecordedSpout):
    """Readings with what makes work a load."""

    columns = tuple(WORK_READING)


class SmartHome:
    """See the module."""

    name = "smart-home"
    summary = "loads of houses and plugs predicted from readings of smart plugs, by slices of several lengths"
    paper = "DEBS 2014 grand challenge, query 1, as in Eskandari, Mair, Huang, Eyers: I-Scheduler, 2020"
    Params = SmartHomeParams

    def __init__(self, params: SmartHomeParams) -> None:
        self.params = params
        self._fills = params.fill == "work"

    def topology(self) -> Topology:
        """Return source, house and plug side by side, sink: 40 executors and 400 pairs by default."""
        parallelism = self.params.parallelism
        reading = {DEFAULT_STREAM: WORK_READING if self._fills else READING}
        by_house = Input("source", "fields", ("house_id",))
        by_plug = Input("source", "fields", ("house_id", "household_id", "plug_id"))

        def predicting(name: str, entry: Input) -> Component:
            return Component(name, "bolt", parallelism[name], inputs=(entry,), outputs={DEFAULT_STREAM: TABLES[name]})

        return Topology(
            id=self.name,
            workers=self.params.workers,
            components=(
                Component("source", "spout", parallelism["source"], outputs=reading),
                predicting("house", by_house),
                predicting("plug", by_plug),
                Component("sink", "bolt", parallelism["sink"], inputs=(Input("house"), Input("plug"))),
            ),
        )

    def operator(self, component: str) -> Operator:
        """Return a new operator of a component."""
        if self.params.api == "columns":
            return self._column_operator(component)
        match component:
            case "source":
                return (WorkReadings if self._fills else Readings)(tick_ns=TICK_S * NS)
            case "house":
                return HouseLoads(self.params)
            case "plug":
                return LoadPredictor(self.params)
            case _:
                return PredictionSink()

    def _column_operator(self, component: str) -> Operator:
        from workloads.smart_home import columns

        match component:
            case "source":
                return (columns.ColumnWorkReadings if self._fills else columns.ColumnReadings)(tick_ns=TICK_S * NS)
            case "house":
                return columns.ColumnHouseLoads(self.params)
            case "plug":
                return columns.ColumnLoads(self.params)
            case _:
                return columns.ColumnPredictionSink()

    def prepare(self, folder: Path) -> Sequence[PreparedInput]:
        """Prepare one record per valid row, of load and of work."""
        from workloads.recordings.prepare import prepare

        source = Path(self.params.input) if self.params.input else _generated(folder)
        return [prepare(source, DEBS2014, folder)]

    def reference(self, positions: Sequence[int], inputs: Sequence[PreparedInput]) -> Answer:
        """Return all predictions, computed column by column."""
        from workloads.smart_home.reference import predictions

        return predictions(inputs[0].path, positions, self.params)

    def compare(self, answer: Answer, reference: Answer) -> Verdict:
        """Compare row by row: keys and numbers of days exactly, loads up to rounding."""
        differences = [
            f"{table}: {difference}"
            for table, rows in reference.items()
            for difference in rows_differ(answer.get(table, ()), rows, len(TABLES[table]) - 2, same=_same)
        ]
        return Verdict(not differences, sum(map(len, reference.values())), "; ".join(differences))


def _same(expected: Row, given: Row) -> bool:
    """Return whether predicted load and number of days are equal in two rows."""
    return expected[1] == given[1] and isclose(expected[0], given[0], rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def _generated(folder: Path) -> Path:
    from workloads.generate.smart_plugs import smart_plugs
    from workloads.generate.writing import write_rows

    path = folder / f"debs2014-{GENERATED_ROWS}-{GENERATED_SEED}.csv.gz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_rows(path, smart_plugs(GENERATED_ROWS, GENERATED_SEED), lambda _rows: None)
    return path

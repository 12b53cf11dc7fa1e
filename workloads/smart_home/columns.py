"""Operators of `smart-home` by columns; state and answers are those of the operators by rows."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from inventory.times import NS
from workloads import columns as column_operators
from workloads.arrays import CellTable, batch_rows
from workloads.columns import ColumnBatch, ColumnBolt, Columns, ColumnsEmitted
from workloads.dictionaries import Codes
from workloads.operators import NOTHING, Batch, Bolt, Emitted, Row
from workloads.recordings.recording import ColumnRecordedSpout
from workloads.smart_home.loads import (
    HOUSE,
    PLUG,
    READING,
    TABLES,
    WORK_READING,
    HouseLoads,
    LoadPredictor,
    Name,
    PredictionSink,
    Slices,
)
from workloads.smart_home.query import BASE, QueryParams
from workloads.topology import DEFAULT_STREAM


class ColumnReadings(ColumnRecordedSpout):
    """Readings of load and of work."""

    columns: ClassVar[tuple[str, ...]] = tuple(READING)


class ColumnWorkReadings(ColumnRecordedSpout):
    """Readings with what makes work a load."""

    columns: ClassVar[tuple[str, ...]] = tuple(WORK_READING)


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Names:
    """Numbers of plugs or of houses, in the order in which they were first met.

    Attributes:
        all: names by number.
    """

    def __init__(self, fields: int) -> None:
        """Start without any; a name has so many fields."""
        self.all: list[Name] = []
        self._number_of: dict[Name, int] = {}
        self._columns = np.empty((fields, 0), np.int64)

    def number(self, name: Name) -> int:
        """Return the number of a name, a new one for a new name."""
        number = self._number_of.setdefault(name, len(self.all))
        if number == len(self.all):
            self.all.append(name)
        return number

    def numbers(self, names: Collection[Name]) -> Codes:
        """Return the numbers of names."""
        return np.fromiter(map(self.number, names), np.intp, len(names))

    @property
    def columns(self) -> Ints:
        """All names: a row per field, a column per number."""
        fields, known = self._columns.shape
        if known < len(self.all):
            fresh = np.array(self.all[known:], np.int64).reshape(-1, fields)
            self._columns = np.concatenate([self._columns, fresh.T], axis=1)
        return self._columns


class Sums:
    """Sums of readings in arrays by the plug's number.

    Attributes:
        order: numbers of the plugs that have any, in the order of their first one.
    """

    def __init__(self, plugs: Names) -> None:
        self._plugs = plugs
        self.order: Codes = np.empty(0, np.intp)
        self._is_in, self._totals, self._counts = np.zeros(0, bool), np.zeros(0), np.zeros(0, np.int64)

    def add(self, numbers: Codes, totals: Floats, counts: Ints | int = 1) -> None:
        """Add readings, each to its plug, in their order, so that every bit is that of the operator by rows.

        Args:
            numbers: of plugs; one may come several times.
            totals: a reading of each, or the sum of several.
            counts: of these readings.
        """
        if missing := len(self._plugs.all) - len(self._is_in):
            self._is_in = np.append(self._is_in, np.zeros(missing, bool))
            self._totals = np.append(self._totals, np.zeros(missing))
            self._counts = np.append(self._counts, np.zeros(missing, np.int64))
        fresh = dict.fromkeys(numbers[~self._is_in[numbers]].tolist())
        if fresh:
            self.order = np.append(self.order, np.array(list(fresh), np.intp))
            self._is_in[self.order] = True
        np.add.at(self._totals, numbers, totals)
        np.add.at(self._counts, numbers, counts)

    def add_all(self, other: "Sums") -> None:
        """Add the sums of others of the same plugs."""
        self.add(other.order, other._totals[other.order], other._counts[other.order])

    @property
    def means(self) -> Floats:
        """Mean reading of each plug in `order`."""
        return self._totals[self.order] / self._counts[self.order]

    def clear(self) -> None:
        """Forget all readings."""
        self._is_in[self.order] = False
        self._totals[self.order], self._counts[self.order] = 0.0, 0
        self.order = np.empty(0, np.intp)

    def by_name(self) -> dict[Name, list[float]]:
        """Return sum and number of the readings of each plug."""
        used = self.order
        entries = zip(used.tolist(), self._totals[used].tolist(), self._counts[used].tolist(), strict=True)
        return {self._plugs.all[number]: [total, count] for number, total, count in entries}

    def add_by_name(self, sums: Mapping[Name, Sequence[float]]) -> None:
        """Add the result of `by_name`."""
        totals, counts = zip(*sums.values(), strict=True) if sums else ((), ())
        self.add(self._plugs.numbers(sums), np.array(totals, np.float64), np.array(counts, np.int64))


class ColumnSlices(Slices):
    """Slices of one length without readings of work.

    Attributes:
        sums: of the current slice.
    """

    def __init__(self, length_s: int, of_a_day: int, plugs: Names, predicted: Names) -> None:
        """Create them; `predicted` are the names of what is predicted: plugs or houses."""
        super().__init__(length_s, of_a_day)
        self.sums = Sums(plugs)
        self._predicted = predicted
        # Of earlier days, see `_median`; -1 days: not looked up.
        self._middles, self._days = np.zeros(0), np.zeros(0, np.int64)

    def predict(self, tick: int, numbers: Codes, loads: Floats) -> list[npt.NDArray[Any]]:
        """Return predictions as columns, from loads in the current slice; close the slice if it ends at the tick."""
        if missing := len(self._predicted.all) - len(self._days):
            self._middles = np.append(self._middles, np.zeros(missing))
            self._days = np.append(self._days, np.full(missing, -1, np.int64))
        slice_ = self._at(tick) + 2
        for number in numbers[self._days[numbers] < 0].tolist():
            self._middles[number], self._days[number] = self._median(self._predicted.all[number], slice_)
        days = self._days[numbers]
        values = np.where(days > 0, (loads + self._middles[numbers]) / 2, loads)
        head = [np.full(len(numbers), value) for value in (tick, self.length_s, BASE + slice_ * self.length_s)]
        if not (tick - BASE) % self.length_s:
            names = map(self._predicted.all.__getitem__, numbers.tolist())
            self.pass_tick(tick, dict(zip(names, loads.tolist(), strict=True)))
            self.sums.clear()
            self._days[:] = -1
        return [*head, *self._predicted.columns[:, numbers], values, days]

    def parts(self) -> tuple[Mapping[Name, Any], Mapping[Name, Any], Mapping[Name, Any]]:
        return self.sums.by_name(), *super().parts()[1:]

    def restore(self, sums: Mapping[Name, Any], work: Mapping[Name, Any], past: Mapping[Name, Any]) -> None:
        super().restore({}, work, past)
        self.sums.clear()
        self.sums.add_by_name(sums)
        self._days[:] = -1


class ColumnLoads(LoadPredictor, ColumnBolt):
    """Predicts loads of plugs.

    It emits at ticks only. Readings since the last one are in arrays from the first columns on, before that in
    `_loads`, which costs less for a few rows. With readings of work, loads are predicted by rows.
    """

    fields: ClassVar[Sequence[str]] = tuple(PLUG)
    derives: ClassVar[bool] = True

    def __init__(self, query: QueryParams, predicted: Names | None = None) -> None:
        """Create it; `predicted` are the names of what is predicted, unless it is plugs."""
        super().__init__(query)
        self._plugs = Names(3)
        self._between_ticks = Sums(self._plugs)
        self._numbers = CellTable(3, self._plugs.number)
        self._columns: list[ColumnSlices] = []
        if not self._fills:
            names = predicted or self._plugs
            self._columns = [
                ColumnSlices(length, query.day_s // length, self._plugs, names) for length in query.lengths
            ]
            self._slices = [*self._columns]

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        columns = batch.columns
        is_load = columns.column(3).to_numpy() != 0
        if not is_load.all():
            if self._fills:
                for row in batch_rows(columns.filter(pa.array(~is_load))):
                    self._note_work(*row)
            columns = columns.filter(pa.array(is_load))
        if columns.num_rows:
            names = [columns.column(at).to_numpy() for at in range(3)]
            numbers = self._numbers.of(names)
            if numbers is None:
                # Such identifiers are not in the data.
                numbers = self._plugs.numbers(list(zip(*(part.tolist() for part in names), strict=True)))
            self._to_arrays()
            self._between_ticks.add(numbers, columns.column(4).to_numpy())
        return NOTHING

    def process(self, batch: Batch) -> Emitted:
        if not len(self._between_ticks.order):
            return super().process(batch)
        loads = [row for row in batch.rows if row[3]]
        if self._fills:
            for row in batch.rows:
                if not row[3]:
                    self._note_work(*row)
        values = np.array([row[4] for row in loads], np.float64)
        self._between_ticks.add(self._plugs.numbers([row[:3] for row in loads]), values)
        return NOTHING

    def _to_arrays(self) -> None:
        if self._loads:
            self._between_ticks.add_by_name(self._loads)
            self._loads = {}

    def _to_rows(self) -> None:
        self._to_arrays()
        self._loads = self._between_ticks.by_name()
        self._between_ticks.clear()

    def combine_columns(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        """Drop rows without information, as `combine` does."""
        return columns if self._fills else columns.filter(pa.array(columns.column(3).to_numpy() != 0))

    def on_tick(self, time_ns: int) -> Emitted:
        if self._fills:
            self._to_rows()
            return super().on_tick(time_ns)
        self._to_arrays()
        parts = []
        for slices in self._columns:
            slices.sums.add_all(self._between_ticks)
            parts.append(slices.predict(time_ns // NS, *self._grouped(slices.sums)))
        self._between_ticks.clear()
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        if len(columns[0]) < column_operators.rows_below(self):
            return {DEFAULT_STREAM: list(zip(*(column.tolist() for column in columns), strict=True))}
        batch = pa.RecordBatch.from_arrays(list(map(pa.array, columns)), names=list(self.fields))
        return {DEFAULT_STREAM: batch}

    def _grouped(self, sums: Sums) -> tuple[Codes, Floats]:
        """Return numbers and loads of what is predicted."""
        return sums.order, sums.means

    def store_state(self) -> None:
        self._to_rows()
        super().store_state()

    def load_state(self) -> None:
        self._between_ticks.clear()
        super().load_state()


class ColumnHouseLoads(ColumnLoads, HouseLoads):
    """Predicts loads of houses."""

    fields: ClassVar[Sequence[str]] = tuple(HOUSE)

    def __init__(self, query: QueryParams) -> None:
        self._houses = Names(1)
        super().__init__(query, self._houses)
        self._house_of: Codes = np.empty(0, np.intp)

    def _grouped(self, sums: Sums) -> tuple[Codes, Floats]:
        fresh = self._plugs.all[len(self._house_of) :]
        if fresh:
            self._house_of = np.append(self._house_of, self._houses.numbers([plug[:1] for plug in fresh]))
        house_of = self._house_of[sums.order]
        # In the order of the plugs, so that every bit of a sum is that of the operator by rows.
        loads = np.zeros(len(self._houses.all))
        np.add.at(loads, house_of, sums.means)
        houses = np.array(list(dict.fromkeys(house_of.tolist())), np.intp)
        return houses, loads[houses]


class ColumnPredictions(Bolt):
    """One table of the answer, of rows and of columns."""

    def __init__(self, table: str, schema: Mapping[str, str]) -> None:
        self.answer_table, self.answer_schema = table, schema  # type: ignore[misc]  # of its own, not of the class
        self.rows: list[Row] = []
        self._columns: list[pa.RecordBatch] = []

    def add(self, columns: pa.RecordBatch) -> None:
        """Add predictions."""
        self._columns.append(columns)

    def settled(self) -> Iterable[Row]:
        rows, columns, self.rows, self._columns = self.rows, self._columns, [], []
        if not columns:
            return rows
        settled = Columns(self.answer_schema, *columns)
        settled += Columns.of_rows(self.answer_schema, rows)
        return settled

    def all_rows(self) -> list[Row]:
        """Return all predictions as rows."""
        return [*self.rows, *(row for columns in self._columns for row in batch_rows(columns))]

    def replace(self, rows: list[Row]) -> None:
        """Replace all predictions."""
        self.rows, self._columns = rows, []


class ColumnPredictionSink(PredictionSink, ColumnBolt):
    """Keeps predictions in a table for each component that makes them, as they come."""

    def __init__(self) -> None:
        self._tables = {name: ColumnPredictions(name, schema) for name, schema in TABLES.items()}

    def tables(self) -> Iterable[Bolt]:
        return self._tables.values()

    def process(self, batch: Batch) -> Emitted:
        self._tables[batch.source].rows += batch.rows
        return NOTHING

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        self._tables[batch.source].add(batch.columns)
        return NOTHING

    def store_state(self) -> None:
        self.rows.update({name: rows for name, table in self._tables.items() if (rows := table.all_rows())})

    def load_state(self) -> None:
        for name, table in self._tables.items():
            table.replace(self.rows.get(name, []))

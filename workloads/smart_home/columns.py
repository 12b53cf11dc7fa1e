"""Source and bolts of `smart-home` by columns; state and answers are those of the operators by rows."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from inventory.times import NS
from workloads.arrays import CellTable, rows_of
from workloads.columns import ROWS_BELOW, ColumnBatch, ColumnBolt, ColumnsEmitted
from workloads.dictionaries import Codes
from workloads.operators import NOTHING, Batch, Emitted, Row
from workloads.recordings.recording import ColumnRecordedSpout
from workloads.smart_home.loads import HOUSE, PLUG, READING, WORK_READING, HouseLoads, Loads, Name, Slices
from workloads.smart_home.query import BASE, QueryParams
from workloads.topology import DEFAULT_STREAM


class ColumnReadings(ColumnRecordedSpout):
    """Readings of load and of work."""

    columns: ClassVar[tuple[str, ...]] = tuple(READING)


class ColumnWorkReadings(ColumnRecordedSpout):
    """Readings with what makes work a load."""

    columns: ClassVar[tuple[str, ...]] = tuple(WORK_READING)


Floats = npt.NDArray[np.float64]


class ColumnSlices(Slices):
    """Slices of one length without readings of work; sums of plugs in the current one are in arrays by number."""

    def __init__(self, length_s: int, of_a_day: int, names: Sequence[Name], number: Callable[[Name], int]) -> None:
        """Create them; `names` are those of plugs by number, `number` is a plug's."""
        super().__init__(length_s, of_a_day)
        self._names, self._number = names, number
        # Numbers of the plugs in the slice, in the order of a dictionary by plug.
        self._order = np.empty(0, np.intp)
        self._is_in, self._sums, self._counts = np.zeros(0, bool), np.zeros(0), np.zeros(0, np.int64)
        # Of earlier days, see `_median`; -1 days: not looked up.
        self._middles, self._days = np.zeros(0), np.zeros(0, np.int64)

    def add_sums(self, numbers: Codes, sums: Floats, counts: npt.NDArray[np.int64]) -> tuple[Codes, Floats]:
        """Add the readings between two ticks; return plugs and loads in the current slice.

        Args:
            numbers: of plugs, each once.
            sums: of their load readings.
            counts: of these readings.
        """
        if missing := len(self._names) - len(self._is_in):
            self._is_in = np.append(self._is_in, np.zeros(missing, bool))
            self._sums, self._counts = np.append(self._sums, np.zeros(missing)), _longer(self._counts, missing, 0)
            self._middles, self._days = np.append(self._middles, np.zeros(missing)), _longer(self._days, missing, -1)
        fresh = numbers[~self._is_in[numbers]]
        self._order, self._is_in[fresh] = np.concatenate([self._order, fresh]), True
        self._sums[numbers] += sums
        self._counts[numbers] += counts
        return self._order, self._sums[self._order] / self._counts[self._order]

    def predict(self, tick: int, order: Codes, loads: Floats) -> tuple[tuple[int, int, int], Floats, npt.NDArray[Any]]:
        """Return tick, length and time of the predictions of plugs, the predicted loads, and the numbers of days."""
        predicted = self._at(tick) + 2
        for number in order[self._days[order] < 0].tolist():
            self._middles[number], self._days[number] = self._median(self._names[number], predicted)
        days = self._days[order]
        found = np.where(days > 0, (loads + self._middles[order]) / 2, loads)
        return (tick, self._length_s, BASE + predicted * self._length_s), found, days

    def pass_tick(self, tick: int, loads: Mapping[Name, float]) -> None:
        super().pass_tick(tick, loads)
        if self.ends_at(tick):
            self._forget()

    def ends_at(self, tick: int) -> bool:
        """Return whether the current slice ends at the tick."""
        return not (tick - BASE) % self._length_s

    def _forget(self) -> None:
        self._is_in[self._order] = False
        self._sums[self._order], self._counts[self._order] = 0.0, 0
        self._days[:] = -1
        self._order = np.empty(0, np.intp)

    @property
    def state(self) -> Any:
        used = self._order
        entries = zip(used.tolist(), self._sums[used].tolist(), self._counts[used].tolist(), strict=True)
        self._loads = {self._names[number]: [total, count] for number, total, count in entries}
        state = super().state
        self._loads = {}
        return state

    def restore(self, state: Any) -> None:
        super().restore(state)
        loads, self._loads = self._loads, {}
        numbers = _array(map(self._number, loads), np.intp, len(loads))
        self.add_sums(numbers, *_sums_of(loads.values()))


def _longer(numbers: npt.NDArray[np.int64], by: int, value: int) -> npt.NDArray[np.int64]:
    return np.append(numbers, np.full(by, value, np.int64))


def _array(values: Iterable[Any], kind: Any, count: int) -> npt.NDArray[Any]:
    return np.fromiter(values, kind, count)


def _sums_of(loads: Collection[Sequence[float]]) -> tuple[Floats, npt.NDArray[np.int64]]:
    sums, counts = zip(*loads, strict=True) if loads else ((), ())
    return np.array(sums, np.float64), np.array(counts, np.int64)


class ColumnLoads(Loads, ColumnBolt):
    """Predicts loads of plugs.

    It emits at ticks only. Between two ticks, sums are in arrays by the plug's number. Whatever else reads or changes
    them has them first written back. Without readings of work, loads are predicted by columns, too.
    """

    fields: ClassVar[Sequence[str]] = tuple(PLUG)

    def __init__(self, query: QueryParams) -> None:
        super().__init__(query)
        self._names: list[Name] = []
        self._number_of: dict[Name, int] = {}
        self._columns: list[ColumnSlices] = []
        if not self._fills:
            self._columns = [
                ColumnSlices(length, query.day_s // length, self._names, self._numbered) for length in query.lengths
            ]
            self._slices = [*self._columns]
        self._numbers = CellTable(3, self._numbered)
        self._sums = np.zeros(0)
        self._counts = np.zeros(0, np.int64)
        self._in_arrays = np.zeros(0, bool)
        self._named = np.empty((0, 3), np.int64)

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        columns = batch.columns
        is_load = columns.column(3).to_numpy() != 0
        if not is_load.all():
            if self._fills:
                for row in rows_of(columns.filter(pa.array(~is_load))):
                    self._note_work(*row)
            columns = columns.filter(pa.array(is_load))
        if not columns.num_rows:
            return NOTHING
        numbers = self._numbers.of([columns.column(at).to_numpy() for at in range(3)])
        if numbers is None:
            # Such identifiers are not in the data.
            return self.process(Batch(batch.source, batch.stream, rows_of(columns)))
        self._bring(numbers)
        # Each in the order of the rows, so that every bit of a sum is that of the operator by rows.
        np.add.at(self._sums, numbers, columns.column(4).to_numpy())
        np.add.at(self._counts, numbers, 1)
        return NOTHING

    def _numbered(self, name: Name) -> int:
        number = self._number_of.setdefault(name, len(self._names))
        if number == len(self._names):
            self._names.append(name)
        return number

    def _bring(self, numbers: Codes) -> None:
        """Bring the sums of plugs into the arrays."""
        names = self._names
        if missing := len(names) - len(self._sums):
            self._sums = np.append(self._sums, np.zeros(missing))
            self._counts = np.append(self._counts, np.zeros(missing, np.int64))
            self._in_arrays = np.append(self._in_arrays, np.zeros(missing, bool))
        # In the order in which plugs come, which is that of sums over the plugs of a house.
        for number in dict.fromkeys(numbers[~self._in_arrays[numbers]].tolist()):
            self._sums[number], self._counts[number] = self._loads.setdefault(names[number], [0.0, 0])
            self._in_arrays[number] = True

    def _write_back(self) -> None:
        used = np.flatnonzero(self._in_arrays)
        self._in_arrays[used] = False
        names = self._names
        sums, counts = self._sums[used].tolist(), self._counts[used].tolist()
        for number, total, count in zip(used.tolist(), sums, counts, strict=True):
            self._loads[names[number]] = [total, count]

    def combine_columns(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        """Drop rows without information, as `combine` does."""
        return columns if self._fills else columns.filter(pa.array(columns.column(3).to_numpy() != 0))

    def process(self, batch: Batch) -> Emitted:
        self._write_back()
        return super().process(batch)

    def on_tick(self, time_ns: int) -> Emitted:
        self._write_back()
        if self._fills:
            return super().on_tick(time_ns)
        loads = self._loads
        numbers = _array(map(self._numbered, loads), np.intp, len(loads))
        sums, counts = _sums_of(loads.values())
        loads.clear()
        tick, emitted = time_ns // NS, list[Row]()
        parts: list[list[npt.NDArray[Any]]] = []
        for slices in self._columns:
            self._predict(slices, tick, *slices.add_sums(numbers, sums, counts), emitted, parts)
        if not parts:
            return {DEFAULT_STREAM: emitted}
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        if len(columns[0]) < ROWS_BELOW:
            return {DEFAULT_STREAM: list(zip(*(column.tolist() for column in columns), strict=True))}
        batch = pa.RecordBatch.from_arrays(list(map(pa.array, columns)), names=list(self.fields))
        return {DEFAULT_STREAM: batch}

    def _predict(
        self,
        slices: ColumnSlices,
        tick: int,
        order: Codes,
        loads: Floats,
        emitted: list[Row],
        parts: list[list[npt.NDArray[Any]]],
    ) -> None:
        """Add the predictions of one length to `emitted`, or as columns to `parts`; close the slice if it ends."""
        head, predicted, days = slices.predict(tick, order, loads)
        plugs = self._plugs()[order]
        parts.append([*(np.full(len(order), value) for value in head), *plugs.T, predicted, days])
        ended = zip(order.tolist(), loads.tolist(), strict=True) if slices.ends_at(tick) else ()
        slices.pass_tick(tick, {self._names[number]: load for number, load in ended})

    def _plugs(self) -> npt.NDArray[np.int64]:
        """Return the names of all plugs, as rows."""
        if len(self._named) < len(self._names):
            self._named = np.array(self._names, np.int64).reshape(-1, 3)
        return self._named

    def snapshot(self) -> bytes:
        self._write_back()
        return super().snapshot()

    def snapshot_groups(self, groups: Collection[int] | None = None) -> tuple[bytes, Mapping[int, bytes]]:
        self._write_back()
        return super().snapshot_groups(groups)

    def restore(self, state: bytes) -> None:
        self._write_back()
        super().restore(state)

    def restore_groups(self, common: bytes, groups: Mapping[int, bytes]) -> None:
        self._write_back()
        super().restore_groups(common, groups)


class ColumnHouseLoads(ColumnLoads, HouseLoads):
    """Predicts loads of houses, of which there are too few for columns."""

    fields: ClassVar[Sequence[str]] = tuple(HOUSE)

    def _predict(
        self,
        slices: ColumnSlices,
        tick: int,
        order: Codes,
        loads: Floats,
        emitted: list[Row],
        parts: list[list[npt.NDArray[Any]]],
    ) -> None:
        of_plugs = self._plugs()[order, 0]
        houses, first, of = np.unique(of_plugs, return_index=True, return_inverse=True)
        # In the order of the plugs, so that every bit of a sum is that of the operator by rows.
        sums = np.zeros(len(houses))
        np.add.at(sums, of, loads)
        by_first = np.argsort(first)
        found: dict[Name, float] = {
            (house,): load for house, load in zip(houses[by_first].tolist(), sums[by_first].tolist(), strict=True)
        }
        emitted += slices.predictions(tick, found)
        slices.pass_tick(tick, found)

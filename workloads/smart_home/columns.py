"""Source and bolts of `smart-home` by columns; state and answers are those of the operators by rows."""

from collections.abc import Collection, Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa

from workloads.arrays import CellTable, Codes, rows_of
from workloads.columns import ColumnBatch, ColumnBolt, ColumnsEmitted
from workloads.operators import NOTHING, Batch, Emitted
from workloads.recordings.recording import ColumnRecordedSpout
from workloads.smart_home.loads import READING, WORK_READING, HouseLoads, Loads, Name
from workloads.smart_home.query import QueryParams


class ColumnReadings(ColumnRecordedSpout):
    """Readings of load and of work."""

    columns: ClassVar[tuple[str, ...]] = tuple(READING)


class ColumnWorkReadings(ColumnRecordedSpout):
    """Readings with what makes work a load."""

    columns: ClassVar[tuple[str, ...]] = tuple(WORK_READING)


class ColumnLoads(Loads, ColumnBolt):
    """Predicts loads of plugs.

    It emits at ticks only. Between two ticks, sums are in arrays by the plug's number. Whatever else reads or changes
    them has them first written back.
    """

    def __init__(self, query: QueryParams) -> None:
        super().__init__(query)
        self._names: list[Name] = []
        self._numbers = CellTable(3, self._numbered)
        self._sums = np.zeros(0)
        self._counts = np.zeros(0, np.int64)
        self._in_arrays = np.zeros(0, bool)

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
        self._names.append(name)
        return len(self._names) - 1

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
        return super().on_tick(time_ns)

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
    """Predicts loads of houses."""

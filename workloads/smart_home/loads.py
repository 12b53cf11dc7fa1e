"""Bolts that predict the load of houses and plugs at every tick, and the sink that keeps the predictions.

Readings are summed by plug between two ticks and added to the slices of all lengths at a tick, because slices begin and
end only at ticks. So the cost of a reading does not depend on the number of lengths.

A bolt keeps, per length, the sums of the current slice, and 8 bytes for each earlier slice of each plug or house: with
the official lengths and days 15 KB per plug and day. The median needs them all.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isnan
from operator import add
from statistics import median
from typing import Any

import msgspec

from inventory.times import NS
from workloads.keyed_state import KeyedState, Table
from workloads.operators import NOTHING, Batch, Bolt, Emitted, Row
from workloads.smart_home.query import BASE, WATT_SECONDS_OF_A_KWH, QueryParams
from workloads.topology import DEFAULT_STREAM, FieldType

Name = tuple[int, ...]
"""Of a plug: house, household, plug; of a house: itself alone."""

Counter = tuple[int, float]
"""A reading of a plug's work: when, in seconds since 1970, and kWh since the last reset."""

UNDEFINED = float("nan")

READING: Mapping[str, FieldType] = {
    "house_id": "int",
    "household_id": "int",
    "plug_id": "int",
    "property": "int",
    "value": "float",
}
"""Input fields of load readings."""

WORK_READING: Mapping[str, FieldType] = {**READING, "timestamp": "int", "seq": "int"}
"""Input fields of loads when work counters fill gaps; `seq` orders the readings of a second."""

HOUSE: Mapping[str, FieldType] = {
    "tick": "int",
    "slice_s": "int",
    "ts": "int",
    "house_id": "int",
    "predicted_load": "float",
    "n_history": "int",
}
"""A prediction; `ts` is the begin of the slice that it is for."""

PLUG: Mapping[str, FieldType] = {
    "tick": "int",
    "slice_s": "int",
    "ts": "int",
    "house_id": "int",
    "household_id": "int",
    "plug_id": "int",
    "predicted_load": "float",
    "n_history": "int",
}


class WorkCounter(msgspec.Struct, array_like=True):
    """A plug's work counter between two ticks: its first and last reading, each with its number."""

    first: tuple[int, Counter]
    last: tuple[int, Counter]


class LoadPredictor(Bolt):
    """Predicts loads of plugs.

    Its state is kept by plug, or by house, between ticks and in the current slices; `past` are loads of past slices.
    Keys of the slices' tables end with the length of the slice.
    """

    sums = KeyedState(tuple[float, int])
    work = KeyedState(WorkCounter)
    counters = KeyedState(tuple[int, float])
    slice_sums = KeyedState(tuple[float, int])
    slice_work = KeyedState(tuple[Counter, Counter])
    past = KeyedState(tuple[int, bytes])

    def __init__(self, query: QueryParams) -> None:
        self._fills = query.fill == "work"
        self._slices = [Slices(length, query.day_s // length) for length in query.lengths]
        self._loads: dict[Name, list[float]] = {}
        self._work: dict[Name, WorkCounter] = {}
        self._counters: dict[Name, Counter] = {}

    def combine(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Drop rows without information: work, unless it fills gaps."""
        return rows if self._fills else [row for row in rows if row[3]]

    def process(self, batch: Batch) -> Emitted:
        loads = self._loads
        known = loads.get
        for row in batch.rows:
            if row[3]:
                plug = row[:3]
                sums = known(plug)
                if sums is None:
                    loads[plug] = [row[4], 1]
                else:
                    sums[0] += row[4]
                    sums[1] += 1
            elif self._fills:
                self._note_work(*row)
        return NOTHING

    def on_tick(self, time_ns: int) -> Emitted:
        tick = time_ns // NS
        rows: list[Row] = []
        for slices in self._slices:
            slices.add(self._loads, self._work, self._counters)
            loads = self.grouped(slices.loads())
            rows += slices.predictions(tick, loads)
            slices.pass_tick(tick, loads)
        self._counters |= {plug: work.last[1] for plug, work in self._work.items()}
        self._loads.clear()
        self._work.clear()
        return {DEFAULT_STREAM: rows}

    def grouped(self, loads: dict[Name, float]) -> Mapping[Name, float]:
        """Return the loads to predict, from the plugs' loads."""
        return loads

    def _note_work(
        self, house: int, household: int, plug: int, _property: int, value: float, timestamp: int, seq: int
    ) -> None:
        reading = seq, (timestamp, value)
        work = self._work.setdefault((house, household, plug), WorkCounter(reading, reading))
        work.first, work.last = min(work.first, reading), max(work.last, reading)

    def store_state(self) -> None:
        self.sums.update({plug: (total, int(count)) for plug, (total, count) in self._loads.items()})
        self.work.update(self._work)
        self.counters.update(self._counters)
        for slices in self._slices:
            for table, part in zip(self._slice_tables, slices.parts(), strict=True):
                table.update({(*name, slices.length_s): value for name, value in part.items()})

    def load_state(self) -> None:
        self._loads, self._work, self._counters = _counted(self.sums), dict(self.work), dict(self.counters)
        for slices in self._slices:
            length = slices.length_s
            slices.restore(
                *(
                    {key[:-1]: value for key, value in table.items() if key[-1] == length}
                    for table in self._slice_tables
                )
            )

    @property
    def _slice_tables(self) -> tuple[Table[Any], Table[Any], Table[Any]]:
        return self.slice_sums, self.slice_work, self.past


class HouseLoads(LoadPredictor):
    """Predicts loads of houses: sums of their plugs' loads."""

    def grouped(self, loads: dict[Name, float]) -> Mapping[Name, float]:
        houses: dict[Name, float] = {}
        for plug, load in loads.items():
            house = plug[:1]
            houses[house] = houses.get(house, 0.0) + load
        return houses


class Slices:
    """Slices of one length: the current one and the past ones.

    Attributes:
        length_s: their length.
    """

    def __init__(self, length_s: int, of_a_day: int) -> None:
        self.length_s, self._of_a_day = length_s, of_a_day
        self._loads: dict[Name, list[float]] = {}
        self._work: dict[Name, tuple[Counter, Counter]] = {}
        self._past: dict[Name, Past] = {}
        # Constant during the current slice, as they depend on completed slices only.
        self._medians: dict[Name, tuple[float, int]] = {}

    def add(
        self, loads: Mapping[Name, Sequence[float]], work: Mapping[Name, WorkCounter], counters: Mapping[Name, Counter]
    ) -> None:
        """Add the readings between two ticks.

        Args:
            loads: sum and number of each plug's load readings.
            work: each plug's readings of work.
            counters: each plug's last reading of work before these.
        """
        for plug, (total, count) in loads.items():
            sums = self._loads.setdefault(plug, [0.0, 0])
            sums[0] += total
            sums[1] += count
        for plug, read in work.items():
            begin, _ = self._work.get(plug) or (counters.get(plug, read.first[1]), None)
            self._work[plug] = begin, read.last[1]

    def loads(self) -> dict[Name, float]:
        """Return every plug's load in the current slice, in W; plugs without one are left out."""
        loads = {plug: total / count for plug, (total, count) in self._loads.items()}
        for plug, (begin, end) in self._work.items():
            if plug not in loads and end[0] > begin[0] and end[1] >= begin[1]:
                loads[plug] = (end[1] - begin[1]) * WATT_SECONDS_OF_A_KWH / (end[0] - begin[0])
        return loads

    def predictions(self, tick: int, loads: Mapping[Name, float]) -> Iterator[Row]:
        """Yield rows for the slice after the next one, from loads in the current slice."""
        predicted = self._at(tick) + 2
        head = tick, self.length_s, BASE + predicted * self.length_s
        medians = self._medians
        for name, load in loads.items():
            known = medians.get(name)
            if known is None:
                known = medians[name] = self._median(name, predicted)
            middle, days = known
            yield (*head, *name, (load + middle) / 2 if days else load, days)

    def pass_tick(self, tick: int, loads: Mapping[Name, float]) -> None:
        """Close the current slice if it ends at the tick."""
        if (tick - BASE) % self.length_s:
            return
        at = self._at(tick)
        for name, load in loads.items() if at >= 0 else ():
            past = self._past.get(name)
            if past is None:
                past = self._past[name] = Past(at)
            past.put(at, load)
        self._loads.clear()
        self._work.clear()
        self._medians.clear()

    def parts(self) -> tuple[Mapping[Name, Any], Mapping[Name, Any], Mapping[Name, Any]]:
        """Return the state without derived values: sums, work and past loads, by name."""
        past = {name: (each.first, each.values.tobytes()) for name, each in self._past.items()}
        return self._loads, self._work, past

    def restore(self, sums: Mapping[Name, Any], work: Mapping[Name, Any], past: Mapping[Name, Any]) -> None:
        """Replace the state by a result of `parts`."""
        self._loads, self._work = _counted(sums), dict(work)
        self._past = {name: Past(first, values) for name, (first, values) in past.items()}
        self._medians.clear()

    def _at(self, tick: int) -> int:
        """Return number of the slice of the last second before a tick."""
        return (tick - 1 - BASE) // self.length_s

    def _median(self, name: Name, predicted: int) -> tuple[float, int]:
        """Return the median load of a slice on earlier days, and the number of these days."""
        past = self._past.get(name)
        values = [] if past is None else past.every(self._of_a_day, predicted)
        return (median(values), len(values)) if values else (0.0, 0)


class Past:
    """Loads of past slices, from slice `first` on; `UNDEFINED` where there was none."""

    def __init__(self, first: int, values: bytes = b"") -> None:
        self.first = first
        self.values = array("d", values)

    def put(self, at: int, load: float) -> None:
        """Record the load of a slice after all earlier ones."""
        self.values.extend([UNDEFINED] * (at - self.first - len(self.values)))
        self.values.append(load)

    def every(self, step: int, towards: int) -> list[float]:
        """Return loads of the slices that precede slice `towards` by a multiple of `step`."""
        return [load for load in self.values[(towards - self.first) % step :: step] if not isnan(load)]


def _counted(loads: Mapping[Name, Sequence[float]]) -> dict[Name, list[float]]:
    """Return sums and numbers of readings that can be changed in place."""
    return {name: [total, count] for name, (total, count) in loads.items()}


class Predictions(Bolt):
    """One table of the answer; its rows are final."""

    def __init__(self, table: str, schema: Mapping[str, str], rows: Table[list[Row]]) -> None:
        """Create it; `rows` are those of all tables, by table."""
        self.answer_table, self.answer_schema = table, schema  # type: ignore[misc]  # of its own, not of the class
        self._rows = rows

    def settled(self) -> Iterable[Row]:
        return self._rows.pop(self.answer_table, ())


class PredictionSink(Bolt):
    """Keeps predictions in a table for each component that makes them."""

    rows = KeyedState(list[Row], merge=add)

    def tables(self) -> Iterable[Bolt]:
        return [Predictions(name, schema, self.rows) for name, schema in TABLES.items()]

    def process(self, batch: Batch) -> Emitted:
        self.rows[batch.source] += batch.rows
        return NOTHING


TABLES: Mapping[str, Mapping[str, FieldType]] = {"house": HOUSE, "plug": PLUG}
"""Component -> fields it emits; tables of the answer have the same names."""

"""Query 1 of DEBS 2014 by brute force: every load is averaged from the readings of its slice.

Shares no code with the workload or the pipeline. Rows have the layout of the tables `house` and `plug`.
"""

import gzip
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import floor, fsum, isclose, isfinite
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

Row = tuple[Any, ...]
Plug = tuple[int, int, int]

FIRST_BORDER = 1377986400
WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class Reading(NamedTuple):
    """Valid row; `value` is in W for a load, otherwise in kWh since the last reset."""

    seq: int
    ts: int
    value: float
    is_load: bool
    plug: Plug


def lines_of(path: Path) -> list[bytes]:
    """Return the lines of a raw file, compressed or not, without line ends."""
    data = path.read_bytes()
    data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [line.removesuffix(b"\r") for line in (lines if lines[-1] else lines[:-1])]


def valid_readings(lines: Iterable[bytes]) -> tuple[list[Reading], dict[str, int]]:
    """Return the valid readings in order, and the number of rejected rows by class."""
    readings: list[Reading] = []
    quarantined = {"malformed": 0, "outlier": 0, "out_of_order": 0}
    for seq, line in enumerate(lines):
        try:
            reading = _reading(seq, line)
        except ValueError:
            quarantined["malformed"] += 1
            continue
        if readings and reading.ts < readings[-1].ts:
            quarantined["out_of_order"] += 1
        else:
            readings.append(reading)
    return readings, quarantined


def _reading(seq: int, line: bytes) -> Reading:
    text = line.decode()
    fields = text.split(",")
    if len(fields) != 7 or "\r" in text or not NUMBER.fullmatch(fields[2]):
        raise ValueError(line)
    if not all(WHOLE.fullmatch(field) for at, field in enumerate(fields) if at != 2):
        raise ValueError(line)
    value = float(fields[2])
    number, ts, kind, plug, household, house = (int(field) for at, field in enumerate(fields) if at != 2)
    if min(number, ts, plug, household, house) < 0 or kind not in (0, 1) or not isfinite(value) or value < 0:
        raise ValueError(line)
    return Reading(seq, ts, value, kind == 1, (house, household, plug))


def answer(
    readings: Sequence[Reading], slices: Sequence[int], day_s: int = 86400, fill: str = "none"
) -> dict[str, list[Row]]:
    """Return the tables for readings in order of time."""
    tables: dict[str, list[Row]] = {"house": [], "plug": []}
    for length in slices if readings else ():
        query = _Query(readings, length, day_s // length, fill)
        first = floor((readings[0].ts - FIRST_BORDER) / 30) + 1
        last = floor((readings[-1].ts - FIRST_BORDER) / 30) + 1
        for tick in (FIRST_BORDER + 30 * number for number in range(first, last + 1)):
            at = (tick - 1 - FIRST_BORDER) // length
            head = tick, length, FIRST_BORDER + (at + 2) * length
            for name, average in [*query.plugs(at, tick).items(), *query.houses(at, tick).items()]:
                row = (*head, *name, *query.predicted(name, average, at))
                tables["house" if len(name) == 1 else "plug"].append(row)
    return tables


class _Query:
    """Query for slices of one length, of which a day has `k`."""

    def __init__(self, readings: Sequence[Reading], length: int, k: int, fill: str) -> None:
        self._length, self._k = length, k
        self._loads: dict[int, dict[Plug, list[Reading]]] = defaultdict(lambda: defaultdict(list))
        self._work: dict[Plug, list[Reading]] = defaultdict(list)
        for reading in readings:
            if reading.is_load:
                self._loads[(reading.ts - FIRST_BORDER) // length][reading.plug].append(reading)
            elif fill == "work":
                self._work[reading.plug].append(reading)
        self.complete = cache(self._complete)

    def plugs(self, at: int, before: int) -> dict[Row, float]:
        """Return avgL(p, i, T) of all plugs for which it is defined."""
        found: dict[Row, float] = {}
        for plug, readings in self._loads.get(at, {}).items():
            values = [reading.value for reading in readings if reading.ts < before]
            if values:
                found[plug] = fsum(values) / len(values)
        for plug, work in self._work.items():
            average = self._filled(work, at, before) if plug not in found else None
            if average is not None:
                found[plug] = average
        return found

    def _filled(self, work: Sequence[Reading], at: int, before: int) -> float | None:
        begin = FIRST_BORDER + at * self._length
        inside = [reading for reading in work if begin <= reading.ts < min(before, begin + self._length)]
        earlier = [reading for reading in work if reading.ts < begin]
        if not inside:
            return None
        a, b = (earlier or inside[:1])[-1], inside[-1]
        if b.ts <= a.ts or b.value < a.value:
            return None
        return (b.value - a.value) * 3_600_000 / (b.ts - a.ts)

    def houses(self, at: int, before: int) -> dict[Row, float]:
        """Return avgL(h, i, T) of all houses for which it is defined."""
        plugs = self.plugs(at, before)
        return {
            (house,): fsum(plugs[plug] for plug in plugs if plug[0] == house) for house in {plug[0] for plug in plugs}
        }

    def _complete(self, at: int) -> Mapping[Row, float]:
        end = FIRST_BORDER + (at + 1) * self._length
        return {**self.plugs(at, end), **self.houses(at, end)}

    def predicted(self, name: Row, average: float, at: int) -> tuple[float, int]:
        """Return L(i+2), and the number of earlier slices in the median."""
        earlier = [at + 2 - n * self._k for n in range(1, (at + 2) // self._k + 1)]
        loads = [self.complete(j)[name] for j in earlier if name in self.complete(j)]
        return ((average + median(loads)) / 2, len(loads)) if loads else (average, 0)


def check_same(given: Mapping[str, Iterable[Row]], expected: Mapping[str, Iterable[Row]]) -> None:
    """Check that the tables are equal: loads up to rounding, everything else exactly."""
    for table, rows in expected.items():
        mine = {row[:-2]: row[-2:] for row in rows}
        theirs = [tuple(row) for row in given.get(table, ())]
        assert len(theirs) == len({row[:-2] for row in theirs}), f"{table}: a row is there twice"
        assert {row[:-2] for row in theirs} == mine.keys(), table
        for row in theirs:
            load, days = mine[row[:-2]]
            assert row[-1] == days, (row, days)
            assert isclose(row[-2], load, rel_tol=1e-9, abs_tol=1e-6), (row, load)

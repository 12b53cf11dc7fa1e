"""Rows of traces: the time that each covers, and the part of it in an interval; reading them; and tuples due.

A row of the tables `agents.trace.COVERING` covers the time (`since_ns`, `t_ns`] of its node's clock, and what it counts
is spread evenly over that time. In time that no row covers there was nothing to count: a second without tuples has no
row in `channel`. So an interval has the share `inside / covered` of a row, intervals that follow each other add up, and
all of them together have what was counted.

Histograms of latencies and levels (`queued`, `late_ns`) cannot be divided: such a row belongs to the interval in which
its time ends.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from numpy.typing import NDArray

from agents.power.energy import Curve
from agents.trace import AGENT, CONTROLLER, COVERING
from inventory.atomic_files import replacing_path
from inventory.errors import RunError
from inventory.times import NS

Floats = NDArray[np.float64]
Times = NDArray[np.int64]

MARKS = ("measure_start", "measure_end")
"""Events at the begin and the end of the measured interval."""

MOST_COVERED_NS = 2 * NS
"""Longest time of a row that does not say which time it covers: workers without executors write none."""


class Intervals(Protocol):
    """An interval in the clock of every worker."""

    def of(self, node: str, worker: int) -> tuple[int, int]:
        """Return its begin and end for one worker, in nanoseconds."""
        ...


class Spans:
    """Begin and end of the measured interval, for every worker in its node's clock.

    Every worker records both marks with its own clock. If a worker was started or ended during the run and lacks one of
    them, that of its node's agent is used, or else that of the controller, converted to the node's clock.
    """

    def __init__(self, events: pa.Table, offsets: Mapping[str, int]) -> None:
        """Find the marks in `events`; `offsets` are the nodes' clocks minus the controller's, in ns."""
        self._offsets = offsets
        self._marks: dict[tuple[str, str, int], int] = {}
        for kind in MARKS:
            for row in events.filter(pc.equal(events["kind"], kind)).to_pylist():
                self._marks[kind, row["node"], row["worker"]] = row["t_ns"]

    def of(self, node: str, worker: int) -> tuple[int, int]:
        """Return the interval of one worker.

        Raises:
            RunError: no event marks it.
        """
        start, end = (self._mark(kind, node, worker) for kind in MARKS)
        return start, end

    def _mark(self, kind: str, node: str, worker: int) -> int:
        for noted in ((kind, node, worker), (kind, node, AGENT)):
            if noted in self._marks:
                return self._marks[noted]
        if (kind, CONTROLLER, AGENT) in self._marks and node in self._offsets:
            return self._marks[kind, CONTROLLER, AGENT] + self._offsets[node]
        raise RunError(f"worker {worker} of {node} did not record when the measured interval began and ended")


@dataclass(frozen=True)
class PartOfIntervals:
    """A part of the intervals `whole`: from `from_s` on, counted from their begin, for `seconds`."""

    whole: Intervals
    from_s: float
    seconds: float

    def of(self, node: str, worker: int) -> tuple[int, int]:
        """Return its begin and end for one worker, in nanoseconds."""
        begun, ended = self.whole.of(node, worker)
        start = begun + round(self.from_s * NS)
        return start, min(start + round(self.seconds * NS), ended)


def by_worker(rows: pa.Table, intervals: Intervals) -> Iterator[tuple[pa.Table, int, int]]:
    """Yield each worker's rows with its interval.

    Raises:
        RunError: no event marks the interval of a worker.
    """
    writers = rows.group_by(["node", "worker"]).aggregate([]).to_pylist()
    for node, worker in ((row["node"], row["worker"]) for row in writers):
        mine = pc.and_(pc.equal(rows["node"], node), pc.equal(rows["worker"], worker))
        yield rows.filter(mine), *intervals.of(node, worker)


def ends_within(rows: pa.Table, start: int, end: int) -> pa.ChunkedArray:
    """Return which rows end in an interval; a row that ends at its begin covers the time before it."""
    return pc.and_(pc.greater(rows["t_ns"], start), pc.less_equal(rows["t_ns"], end))


def weighted(rows: pa.Table, intervals: Intervals) -> pa.Table:
    """Return rows with the column `weight`: the share of the time covered that lies in the interval.

    `weight_per_s` is the weight for rates: the marks reach workers at slightly different times, so the interval of each
    worker has its own length.

    Args:
        rows: of a table of `agents.trace.COVERING`, with `node, worker, t_ns, since_ns`.
        intervals: the interval.

    Raises:
        RunError: no event marks the interval of a worker.
    """
    writers = rows.group_by(["node", "worker"]).aggregate([]).to_pylist()
    bounds = np.array([intervals.of(each["node"], each["worker"]) for each in writers], np.int64).reshape(-1, 2)
    keys = pa.table({name: pa.array([each[name] for each in writers], rows[name].type) for name in ("node", "worker")})
    starts, ends = bounds[_codes(rows, keys, ("node", "worker"))].T if len(rows) else bounds.T
    share = shares(rows["since_ns"].to_numpy(), rows["t_ns"].to_numpy(), starts, ends)
    per_s = share / (np.maximum(ends - starts, 1) / NS)
    return rows.append_column("weight", pa.array(share)).append_column("weight_per_s", pa.array(per_s))


def shares(since: Times, until: Times, start: Times | int, end: Times | int) -> Floats:
    """Return the share (0..1) of each row's time that lies between `start` and `end`, all in nanoseconds."""
    inside = np.maximum(np.minimum(until, end) - np.maximum(since, start), 0)
    part: Floats = inside / np.maximum(until - since, 1)
    return part


def weighted_total(rows: pa.Table, column: str, weight: str = "weight") -> float:
    """Return the weighted sum of a column."""
    return float(pc.sum(amounts(rows, column, weight)).as_py() or 0.0)


def amounts(rows: pa.Table, column: str, weight: str = "weight_per_s") -> pa.ChunkedArray:
    """Return a column of weighted rows, times the weight; nulls remain."""
    return pc.multiply(pc.cast(rows[column], pa.float64()), rows[weight])


class AmountOverTime:
    """Amounts over time; that of each row is spread evenly over the time that it covers.

    Unlike `weighted`, which is for one interval, it has the sums of all parts of a long time.
    """

    def __init__(self, since_ns: Times, until_ns: Times, added: Floats) -> None:
        """Add up rows."""
        since_ns = np.minimum(since_ns, until_ns - 1)
        times = np.concatenate([since_ns, until_ns])
        slopes = added / (until_ns - since_ns)
        order = np.argsort(times, kind="stable")
        self._times: Times = times[order]
        rates = np.cumsum(np.concatenate([slopes, -slopes])[order])
        self._levels: Floats = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(self._times))])

    def steps(self, edges_ns: Times) -> Floats:
        """Return the amount between each edge and the next."""
        if not len(self._times):
            return np.zeros(max(0, len(edges_ns) - 1))
        # Times are compared with the first one: a double has no digits for nanoseconds since the boot.
        first = self._times[0]
        amounts_between: Floats = np.diff(np.interp(edges_ns - first, self._times - first, self._levels))
        # Sums of slopes end a little beside 0.
        return np.round(amounts_between, 6) + 0.0

    def between(self, since_ns: int, until_ns: int) -> float:
        """Return the amount in an interval."""
        return float(self.steps(np.array([since_ns, until_ns], np.int64))[0])


def with_since(table: str, rows: pa.Table, reports: pa.Table) -> pa.Table:
    """Return the rows of a table, all with `since_ns`.

    Those of earlier versions lack it, and those of sensors that leave it out. They cover the time since the last report
    of their worker, two seconds at most. CPU times cover the time since the previous row of the same name; the first
    sample of a process gives no row, so the next row of a worker begins at the last sample of its node at the earliest,
    even if an earlier process had the same name. A first row covers a second.

    Args:
        table: its name.
        rows: with `node, worker, t_ns`, and in table `cpu` with `scope, name`.
        reports: `node, worker, t_ns` of the table `throughput`, where each report has a row per executor; of no use for
            the table `cpu`.
    """
    until = rows["t_ns"].to_numpy()
    if table == "cpu":
        before = _last_before(rows, rows, ("node", "worker", "scope", "name"))
        samples = rows.filter(pc.equal(rows["scope"], "agent"))
        is_worker = pc.equal(rows["scope"], "worker").to_numpy()
        before = np.where(is_worker, np.maximum(before, _last_before(rows, samples, ("node", "worker"))), before)
        least = before
    else:
        before = _last_before(rows, reports, ("node", "worker"))
        least = until - MOST_COVERED_NS
    begins = np.where(before == _NEVER, until - NS, np.maximum(before, least))
    if "since_ns" in rows.column_names:
        at = rows.column_names.index("since_ns")
        return rows.set_column(at, "since_ns", pc.coalesce(rows["since_ns"], pa.array(begins)))
    return rows.append_column("since_ns", pa.array(begins))


_NEVER = np.iinfo(np.int64).min


def _last_before(rows: pa.Table, others: pa.Table, key: Sequence[str]) -> Times:
    """Return the time of the last one of `others` with the same key before each row; `_NEVER` without one."""
    together = pa.concat_tables([others.select([*key, "t_ns"]), rows.select([*key, "t_ns"])])
    times, codes = together["t_ns"].to_numpy(), _codes(together, together, key)
    is_row = np.arange(len(together)) >= len(others)
    # At the same time rows come first, so that they do not find themselves.
    order = np.lexsort((~is_row, times, codes))
    latest = np.maximum.accumulate(np.where(is_row[order], -1, np.arange(len(order))))
    has_one = (latest >= 0) & (codes[order][latest] == codes[order])
    last_times = np.empty(len(order), np.int64)
    last_times[order] = np.where(has_one, times[order][latest], _NEVER)
    return last_times[len(others) :]


def _codes(rows: pa.Table, keys: pa.Table, columns: Iterable[str]) -> NDArray[np.int64]:
    """Return a number for each row: that of the first one of `keys` with the same values in these columns."""
    codes = np.zeros(len(rows), np.int64)
    known = np.zeros(len(keys), np.int64)
    for name in columns:
        values: Any = pc.unique(keys[name])
        codes = codes * len(values) + pc.index_in(rows[name], values).to_numpy()
        known = known * len(values) + pc.index_in(keys[name], values).to_numpy()
    first, numbers = np.unique(known, return_index=True)
    row_codes: NDArray[np.int64] = numbers[np.searchsorted(first, codes)]
    return row_codes


_KEY = ("node", "worker", "t_ns")


def read_table(traces: Path, table: str, *columns: str) -> pa.Table:
    """Return these columns of a table, with node, worker and time; `since_ns` is the begin of the time covered."""
    path = traces / f"{table}.parquet"
    if table not in COVERING:
        return pyarrow.parquet.read_table(path, columns=[*_KEY, *columns])
    own = ("scope", "name") if table == "cpu" else ()
    asked = list(dict.fromkeys([*_KEY, *own, *columns, "since_ns"]))
    with pyarrow.parquet.ParquetFile(path) as file:
        rows = file.read([name for name in asked if name in file.schema_arrow.names])
    return _complete(traces, table, rows).select([*_KEY, *columns, "since_ns"])


def says_since(traces: Path, table: str) -> bool:
    """Return whether every row of a table says which time it covers, by the footer of the file."""
    with pyarrow.parquet.ParquetFile(traces / f"{table}.parquet") as file:
        if "since_ns" not in file.schema_arrow.names:
            return False
        at = file.schema_arrow.names.index("since_ns")
        groups = (file.metadata.row_group(number).column(at).statistics for number in range(file.num_row_groups))
        return all(each is not None and each.null_count == 0 for each in groups)


def completed(traces: Path, table: str, folder: Path) -> Path:
    """Return a file of a table in which every row says which time it covers: that of the run, or a copy in `folder`."""
    path = traces / f"{table}.parquet"
    if table not in COVERING or says_since(traces, table):
        return path
    copy = folder / path.name
    if not copy.exists():
        folder.mkdir(parents=True, exist_ok=True)
        # Several threads may ask for the same table at once.
        with replacing_path(copy) as partial:
            pyarrow.parquet.write_table(_complete(traces, table, pyarrow.parquet.read_table(path)), partial)
    return copy


def _complete(traces: Path, table: str, rows: pa.Table) -> pa.Table:
    if "since_ns" in rows.column_names and not rows["since_ns"].null_count:
        return rows
    reports = rows if table == "cpu" else pyarrow.parquet.read_table(traces / "throughput.parquet", columns=list(_KEY))
    return with_since(table, rows, reports)


DueReading = tuple[int, int, int]
"""Time and begin of the time covered, in nanoseconds from the begin of the interval, and the tuples due."""


def due_curves(spouts: pa.Table, intervals: Intervals) -> dict[str, Curve]:
    """Return source -> tuples due, over the time in nanoseconds from the begin of the interval.

    A source that is added later begins without tuples then. Sources without a schedule are left out.

    Args:
        spouts: rows of spouts in the table `throughput`, with `executor, due`.
        intervals: the interval.

    Raises:
        RunError: no event marks the interval of a worker.
    """
    readings: dict[str, list[DueReading]] = {}
    for rows, start, _ in by_worker(spouts.filter(pc.is_valid(spouts["due"])), intervals):
        columns = (rows[name].to_pylist() for name in ("executor", "t_ns", "since_ns", "due"))
        for executor, t_ns, since_ns, due in zip(*columns, strict=True):
            readings.setdefault(executor, []).append((t_ns - start, since_ns - start, due))
    return {executor: _curve(sorted(of_source)) for executor, of_source in readings.items()}


def _curve(readings: list[DueReading]) -> Curve:
    totals = rising_totals(due for *_, due in readings)
    return Curve([(readings[0][1], 0.0), *((at, float(each)) for (at, *_), each in zip(readings, totals, strict=True))])


def rising_totals(due: Iterable[int]) -> list[int]:
    """Return rising totals of the tuples due at one executor; an executor that is added again begins anew.

    Clocks of two workers may differ by a few tuples, and executors that share the records anew by what is late.

    >>> rising_totals([5, 9, 8, 10, 1, 2])
    [5, 9, 9, 10, 11, 12]
    """
    before, highest, totals = 0, 0, []
    for level in due:
        if level < highest / 2:
            before, highest = before + highest, 0
        highest = max(highest, level)
        totals.append(before + highest)
    return totals

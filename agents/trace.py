"""Traces: the tables and columns, and the writer used by every process.

A process writes one Arrow IPC stream file per table, readable up to the last complete batch after a crash. They are
collected into one `traces/<table>.parquet` per run. Every row starts with `run, node, worker, t_ns`:
`worker` is the slot's index, -1 for the node agent; `t_ns` is the node's monotonic clock, which the table `clock` maps
to UTC. A value that is not available is null, never 0.
"""

import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from importlib.abc import MetaPathFinder
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.ipc

from agents import protocol
from agents.protocol.node_folders import regular_files
from inventory.atomic_files import replacing_path
from inventory.errors import RunError, nearest

AGENT = protocol.AGENT
"""The `worker` column of rows that the node agent wrote."""

_KEY = [
    pa.field("run", pa.string(), nullable=False),
    pa.field("node", pa.string(), nullable=False),
    pa.field("worker", pa.int32(), nullable=False),
    pa.field("t_ns", pa.int64(), nullable=False),
]


def _table(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(_KEY + [pa.field(name, kind) for name, kind in columns.items()])


TABLES: Mapping[str, pa.Schema] = {
    # Once a second per executor: rows since the last row of the same executor.
    # role: spout, bolt or sink. Of spouts: late_ns, how late the last emission was against its schedule; due, rows
    # that the schedule wanted by then (both null without a schedule); replayed, rows emitted that had been emitted
    # before a recovery, which are not counted in emitted.
    "throughput": _table(
        executor=pa.string(),
        component=pa.string(),
        role=pa.string(),
        emitted=pa.int64(),
        processed=pa.int64(),
        late_ns=pa.int64(),
        due=pa.int64(),
        replayed=pa.int64(),
    ),
    # Once a second per executor pair with traffic, written by the sender; deltas since its last row.
    # hop: intra_worker, inter_worker or inter_node. bytes: frames as written to the socket; null for
    # intra_worker, where nothing is encoded.
    "channel": _table(
        source=pa.string(),
        target=pa.string(),
        stream=pa.string(),
        hop=pa.string(),
        target_node=pa.string(),
        tuples=pa.int64(),
        batches=pa.int64(),
        bytes=pa.int64(),
    ),
    # Once a second per sink executor: sampled end-to-end latencies as histogram buckets, one row per bucket.
    # value_ns: the bucket's highest equivalent value (relative error <= 1 %). Counts add up over rows.
    "latency": _table(executor=pa.string(), value_ns=pa.int64(), count=pa.int64()),
    # Once a second per executor; deltas for busy_ns (thread CPU inside the operator and its routing) and
    # blocked_ns (had work but no credit), levels for queued (rows waiting in its input queue).
    "executor": _table(executor=pa.string(), busy_ns=pa.int64(), blocked_ns=pa.int64(), queued=pa.int64()),
    # Once a second. scope: core (name = its number), worker (name = slot index), agent, node.
    # cores: CPU seconds per second. scope node on a shared host is the sum of its own processes; on an emulated node,
    # its control group.
    "cpu": _table(
        scope=pa.string(),
        name=pa.string(),
        cores=pa.float64(),
        shared=pa.bool_(),
        package=pa.int64(),
        package_by=pa.string(),
    ),
    # Once a second, bytes. scope: host, worker, agent. kind: rss, available, total.
    "memory": _table(scope=pa.string(), name=pa.string(), kind=pa.string(), bytes=pa.int64(), shared=pa.bool_()),
    # Once a second, cumulative counters of the kernel. shared: the interface also carries others' traffic.
    "network": _table(
        interface=pa.string(),
        rx_bytes=pa.int64(),
        tx_bytes=pa.int64(),
        rx_packets=pa.int64(),
        tx_packets=pa.int64(),
        shared=pa.bool_(),
    ),
    # Ten times a second and at marks, per domain: package-0, dram/package-0, psys. role: package,
    # dram, core, uncore, platform, board, outlet. source: the reader. in_total: a term of the node's sum. raw, raw_max:
    # a counter in its own counts; null of a sensor. joules: since the first row; null when the step before is missing.
    # watts: mean over that step; of a sensor, its reading. t_half_ns: uncertainty of t_ns. flags: separated by commas.
    # shared: the machine carries other nodes too.
    "power": _table(
        domain=pa.string(),
        role=pa.string(),
        source=pa.string(),
        in_total=pa.bool_(),
        raw=pa.int64(),
        raw_max=pa.int64(),
        joules=pa.float64(),
        watts=pa.float64(),
        bound_joules=pa.float64(),
        t_half_ns=pa.int64(),
        flags=pa.string(),
        shared=pa.bool_(),
    ),
    # Of the measured interval, made when the run is over: per step from since_ns to t_ns, term of the total and
    # consumer (executor, transport, rest, idle), whose joules add up to the domain's. name: the executor. cpu_ns: null
    # for idle.
    "energy": _table(
        since_ns=pa.int64(),
        domain=pa.string(),
        source=pa.string(),
        consumer=pa.string(),
        name=pa.string(),
        cpu_ns=pa.int64(),
        joules=pa.float64(),
        flags=pa.string(),
    ),
    # What happened when. kind: worker_started, source_started, measure_start, measure_end, source_stopped, drained,
    # refused_connection, sensor_absent, sampler_cost, ...; value: a number that belongs to the kind, or null. The
    # controller's own events (checkpoint, recovery, move, node_lost, node_returned) have the node "" and worker -1.
    "event": _table(kind=pa.string(), subject=pa.string(), detail=pa.string(), value=pa.float64()),
    # Of the controller, in runs with gates: one row per time slot, at its end. steps: per stage, - while it is empty.
    # tuples, parts: what left; largest_parts: for one executor. h_ns: until every executor had processed one part;
    # stall_predicted_ns: h_ns for each further part of largest_parts; stall_ns: from h_ns to the last part's end.
    # waiting: tuples in all outboxes at the end; largest_outbox: in the fullest one. arrived_ns, processed_ns,
    # packed_ns: until all tuples had arrived, had been processed, and their results were in the outboxes. queued_rows,
    # queued_bytes: in all outboxes and inputs at the end. node_parts: parts received per node, `n1=2 n2=0`.
    "slot": _table(
        epoch=pa.int64(),
        number=pa.int64(),
        steps=pa.string(),
        lasted_ns=pa.int64(),
        parts=pa.int64(),
        tuples=pa.int64(),
        largest_parts=pa.int64(),
        h_ns=pa.int64(),
        stall_predicted_ns=pa.int64(),
        stall_ns=pa.int64(),
        waiting=pa.int64(),
        largest_outbox=pa.int64(),
        arrived_ns=pa.int64(),
        processed_ns=pa.int64(),
        packed_ns=pa.int64(),
        queued_rows=pa.int64(),
        queued_bytes=pa.int64(),
        node_parts=pa.string(),
    ),
    # Pairs of readings of the node's monotonic clock (t_ns) and UTC, and the offset of its monotonic clock against the
    # controller's with its bound; offset null where the two are the same clock.
    "clock": _table(utc_ns=pa.int64(), offset_ns=pa.int64(), bound_ns=pa.int64()),
}
"""Table name -> Arrow schema; documented in docs/reference/traces.md."""

LATER_COLUMNS: Mapping[str, frozenset[str]] = {
    "slot": frozenset({"arrived_ns", "processed_ns", "packed_ns", "queued_rows", "queued_bytes", "node_parts"}),
}
"""Columns that were added to a table later; results of older versions lack them."""

_ROWS = {table: pa.struct(schema) for table, schema in TABLES.items()}

_SUFFIX = ".arrows"

FILES = f"*{_SUFFIX}"
"""Pattern of the trace files in a folder."""

_MOST_STARTS = 10_000
"""Most files per table and process, one for each start."""

_ROW_GROUP = 100_000
"""Rows after which a Parquet file starts a new row group."""


def skip_pandas_import() -> None:
    """Make pyarrow treat pandas as missing in this process; other code can still import it.

    If pandas is installed, pyarrow imports it when it creates its first array. That costs a second of CPU time and
    60 MB in the middle of a run, for a process that only writes traces.
    """
    sys.meta_path.insert(0, _NoPandas())
    try:
        pa.array([])
    finally:
        del sys.meta_path[0]


class _NoPandas(MetaPathFinder):
    """Import hook that makes `import pandas` fail."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used here", name=name)


class TraceWriter:
    """Writer for the rows of one process; after `flush` they survive a crash of this process.

    Several threads may add rows, also during a flush. `flush` blocks its caller until the rows are written.
    """

    def __init__(self, folder: Path, run: str, node: str, worker: int) -> None:
        self._folder = folder
        self._node, self._worker = node, worker
        self._key = (run, node, worker)
        self._rows: dict[str, list[tuple[Any, ...]]] = {}
        self._files: dict[str, FileIO] = {}
        self._adding, self._writing = threading.Lock(), threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, table: str, t_ns: int, *values: Any) -> None:
        """Add one row; `values` in the order of the table's columns after the key."""
        with self._adding:
            self._rows.setdefault(table, []).append((*self._key, t_ns, *values))

    def check(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Check rows from third-party code before `add`.

        Args:
            table: its name.
            rows: `t_ns` and the values of each.

        Raises:
            RunError: there is no such table, or the values do not fit its columns.
        """
        if table not in TABLES:
            raise RunError(f"there is no trace table {table!r}{nearest(table, TABLES)}")
        columns = list(TABLES[table])[len(_KEY) :]
        for _, *values in rows:
            if len(values) != len(columns):
                names = ", ".join(column.name for column in columns)
                raise RunError(f"table {table} has {len(columns)} columns ({names}), the row has {len(values)} values")
        try:
            _record_batch(table, [(*self._key, *row) for row in rows])
        except (pa.ArrowException, ValueError, OverflowError, TypeError) as fault:
            raise RunError(f"a row does not fit table {table}: {fault}: {repr(rows)[:200]}") from None

    def flush(self) -> None:
        """Write all rows added so far, one record batch per table.

        Raises:
            OSError: they cannot be written; these and all later rows are lost.
        """
        with self._writing:
            with self._adding:
                taken, self._rows = self._rows, {}
            for table, rows in taken.items():
                # A stream is its schema followed by its batches. Arrow's writer would call the file for every buffer of
                # every column.
                _write(self._open(table), _record_batch(table, rows).serialize())

    def close(self) -> None:
        """Flush and close the files.

        Raises:
            OSError: the last rows cannot be written; the files are closed nevertheless.
        """
        try:
            self.flush()
        finally:
            with ExitStack() as last:
                for sink in self._files.values():
                    last.callback(sink.close)
                self._files = {}

    def _open(self, table: str) -> FileIO:
        if table not in self._files:
            self._files[table] = self._new_file(table)
            _write(self._files[table], TABLES[table].serialize())
        return self._files[table]

    def _new_file(self, table: str) -> FileIO:
        # Files of earlier starts of the same run on this slot are kept.
        stem = f"{table}-{self._node}-{self._worker}"
        for number in range(_MOST_STARTS):
            path = self._folder / f"{stem}-{number}{_SUFFIX}"
            with suppress(FileExistsError):
                return path.open("xb", buffering=0)
        raise FileExistsError(f"{self._folder} holds {_MOST_STARTS} files of {stem}")


def _write(sink: FileIO, data: pa.Buffer) -> None:
    left = memoryview(data)
    while left:
        left = left[sink.write(left) :]


def _record_batch(table: str, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    # Convert all rows in one call: with one or two rows per table and second, the number of calls dominates.
    return pa.RecordBatch.from_struct_array(pa.array(rows, type=_ROWS[table]))


def read_stream(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of an Arrow IPC stream file; a batch truncated by a crash ends the stream."""
    with path.open("rb") as source:
        try:
            reader = pa.ipc.open_stream(source)
            yield from reader
        except (pa.ArrowException, EOFError, OSError):
            return


class UnreportedRows(NamedTuple):
    """Rows of a worker that died before its report of the same second arrived: later than `since_ns`, until `until_ns`.

    Sources do not know of this work, do it again after the recovery, and count it then.
    """

    node: str
    worker: int
    since_ns: int
    until_ns: int


_COUNTED = frozenset({"throughput", "channel", "latency"})
"""Tables of work, which is counted once however often it is done."""


def collect(folders: Sequence[Path], target: Path, unreported: Sequence[UnreportedRows] = ()) -> dict[str, int]:
    """Merge the stream files below `folders` into `target/<table>.parquet`; return rows per table.

    Every table gets a file, possibly an empty one, so that readers need no special case. Unreported rows of tables of
    work are left out.

    Raises:
        RunError: a file is not a trace of this version.
        OSError: the files cannot be written.
    """
    # Imported here, because only a controller needs it, and every process on a node imports this module.
    import pyarrow.parquet

    target.mkdir(parents=True, exist_ok=True)
    written = {}
    for table, schema in TABLES.items():
        path = target / f"{table}.parquet"
        with replacing_path(path) as partial, pyarrow.parquet.ParquetWriter(partial, schema) as writer:
            rows = 0
            for group in _row_groups(_batches(folders, table)):
                if group.schema != schema:
                    raise RunError(f"a trace of {table} has columns {group.schema.names}, not those of this version")
                if table in _COUNTED:
                    group = _without(group, unreported)
                _write_group(writer, group, table)
                rows += group.num_rows
        written[table] = rows
    return written


def _without(group: pa.Table, unreported: Sequence[UnreportedRows]) -> pa.Table:
    """Return the rows that were reported."""
    import pyarrow.compute as pc

    for node, worker, since_ns, until_ns in unreported:
        t_ns = group["t_ns"]
        within = pc.and_(pc.greater(t_ns, since_ns), pc.less_equal(t_ns, until_ns))
        its = pc.and_(pc.equal(group["node"], node), pc.equal(group["worker"], worker))
        group = group.filter(pc.invert(pc.and_(its, within)))
    return group


def _write_group(writer: "pyarrow.parquet.ParquetWriter", group: pa.Table, table: str) -> None:
    try:
        writer.write_table(group, row_group_size=group.num_rows)
    except pa.ArrowException as fault:  # a null in a key column
        raise RunError(f"a trace of {table} cannot be used: {fault}") from None


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Combine batches into row groups of a reasonable size, because every group costs a reader time."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if held and (rows >= _ROW_GROUP or batch.schema != held[0].schema):
            yield pa.Table.from_batches(held)
            held, rows = [], 0
        held.append(batch)
        rows += batch.num_rows
    if held:
        yield pa.Table.from_batches(held)


def _batches(folders: Iterable[Path], table: str) -> Iterator[pa.RecordBatch]:
    for folder in folders:
        for path in regular_files(folder, f"{table}-*{_SUFFIX}"):
            for batch in read_stream(path):
                try:
                    # Arrow does not check what it reads: a column that points outside its buffer crashes the process.
                    batch.validate(full=True)
                except pa.ArrowException as fault:
                    raise RunError(f"the trace {path} is damaged: {fault}") from None
                yield batch

"""Traces: the tables and columns, and the writer used by every process.

A process writes one file, into which each flush appends a record, readable up to the last complete one after a crash:

    offset  size  field
    0       4     length of the MessagePack, little-endian
    4       4     its CRC-32: what a power cut leaves of a file may end in zeros, which would be rows, too
    8             MessagePack; first the `Head` of the file, then maps from tables to rows

They are collected into one `traces/<table>.parquet` per run (`agents.collected_traces`). Every row starts there with
`run, node, worker, t_ns`: `worker` is the slot's index, -1 for the node agent; `t_ns` is the node's monotonic clock,
which the table `clock` maps to UTC. A value that is not available is null, never 0.

Rows of the tables `COVERING` are about the time (`since_ns`, `t_ns`]: they have what happened in it, and there may be
seconds without a row. Rows of all other tables are about the instant `t_ns`, unless the table says otherwise.

Writing needs no Arrow, which takes a worker a fifth of a second and 30 MB, and ten times as long for a few rows.
"""

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from struct import Struct
from typing import Annotated, Any, NamedTuple
from zlib import crc32

import msgspec

from agents import protocol
from inventory.errors import RunError, nearest

AGENT = protocol.AGENT
"""The `worker` column of rows that the node agent wrote."""

CONTROLLER = ""
"""The `node` column of rows that the controller wrote."""


def _columns(**columns: type) -> Mapping[str, type]:
    return columns


COLUMNS: Mapping[str, Mapping[str, type]] = {
    # Once a second per executor: rows in the time covered.
    # role: spout, bolt or sink. Of spouts: late_ns, how late the last emission was against its schedule; due, rows
    # that the schedule wanted by then (both null without a schedule); replayed, rows emitted that had been emitted
    # before a recovery, which are not counted in emitted.
    "throughput": _columns(
        executor=str,
        component=str,
        role=str,
        emitted=int,
        processed=int,
        late_ns=int,
        due=int,
        replayed=int,
        since_ns=int,
    ),
    # Once a second per executor pair with traffic, written by the sender; rows in the time covered.
    # hop: intra_worker, inter_worker or inter_node. bytes: frames as written to the socket; null for
    # intra_worker, where nothing is encoded.
    "channel": _columns(
        source=str,
        target=str,
        stream=str,
        hop=str,
        target_node=str,
        tuples=int,
        batches=int,
        bytes=int,
        since_ns=int,
    ),
    # Once a second per sink executor: sampled end-to-end latencies as histogram buckets, one row per bucket.
    # value_ns: the bucket's highest equivalent value (relative error <= 1 %). Counts add up over rows.
    "latency": _columns(executor=str, value_ns=int, count=int, since_ns=int),
    # Once a second per executor; in the time covered: busy_ns (thread CPU inside the operator and its routing) and
    # blocked_ns (had work but no credit); at its end: queued (rows waiting in its input queue).
    "executor": _columns(executor=str, busy_ns=int, blocked_ns=int, queued=int, since_ns=int),
    # Once a second. scope: core (name = its number), worker (name = slot index), agent, node.
    # cores: CPU seconds per second of the time covered. scope node on a shared host is the sum of its own processes; on
    # an emulated node, its control group.
    "cpu": _columns(
        scope=str,
        name=str,
        cores=float,
        shared=bool,
        package=int,
        package_by=str,
        since_ns=int,
    ),
    # Once a second, bytes. scope: host, worker, agent. kind: rss, available, total.
    "memory": _columns(scope=str, name=str, kind=str, bytes=int, shared=bool),
    # Once a second, cumulative counters of the kernel. shared: the interface also carries others' traffic.
    "network": _columns(
        interface=str,
        rx_bytes=int,
        tx_bytes=int,
        rx_packets=int,
        tx_packets=int,
        shared=bool,
    ),
    # Ten times a second and at marks, per domain: package-0, dram/package-0, psys. role: package,
    # dram, core, uncore, platform, board, outlet. source: the reader. in_total: a term of the node's sum. raw, raw_max:
    # a counter in its own counts; null of a sensor. joules: since the first row; null when the step before is missing.
    # watts: mean over that step; of a sensor, its reading. t_half_ns: uncertainty of t_ns. flags: separated by commas.
    # shared: the machine carries other nodes too.
    "power": _columns(
        domain=str,
        role=str,
        source=str,
        in_total=bool,
        raw=int,
        raw_max=int,
        joules=float,
        watts=float,
        bound_joules=float,
        t_half_ns=int,
        flags=str,
        shared=bool,
    ),
    # Of the measured interval, made when the run is over: per step from since_ns to t_ns, term of the total and
    # consumer (executor, transport, rest, idle), whose joules add up to the domain's. name: the executor. cpu_ns: null
    # for idle.
    "energy": _columns(
        since_ns=int,
        domain=str,
        source=str,
        consumer=str,
        name=str,
        cpu_ns=int,
        joules=float,
        flags=str,
    ),
    # What happened when. kind: worker_started, source_started, measure_start, measure_end, source_stopped, drained,
    # refused_connection, sensor_absent, sampler_cost, ...; value: a number that belongs to the kind, or null. The
    # controller's own events (checkpoint, recovery, move, node_lost, node_returned) have the node "" and worker -1.
    "event": _columns(kind=str, subject=str, detail=str, value=float),
    # Of the controller, in runs with gates: one row per time slot, at its end. steps: per stage, - while it is empty.
    # tuples, parts: what left; largest_parts: for one executor. h_ns: until every executor had processed one part;
    # stall_predicted_ns: h_ns for each further part of largest_parts; stall_ns: from h_ns to the last part's end.
    # waiting: tuples in all outboxes at the end; largest_outbox: in the fullest one. arrived_ns, processed_ns,
    # packed_ns: until all tuples had arrived, had been processed, and their results were in the outboxes. queued_rows,
    # queued_bytes: in all outboxes and inputs at the end. node_parts: parts received per node, `n1=2 n2=0`.
    "slot": _columns(
        epoch=int,
        number=int,
        steps=str,
        lasted_ns=int,
        parts=int,
        tuples=int,
        largest_parts=int,
        h_ns=int,
        stall_predicted_ns=int,
        stall_ns=int,
        waiting=int,
        largest_outbox=int,
        arrived_ns=int,
        processed_ns=int,
        packed_ns=int,
        queued_rows=int,
        queued_bytes=int,
        node_parts=str,
    ),
    # Pairs of readings of the node's monotonic clock (t_ns) and UTC, and the offset of its monotonic clock against the
    # controller's with its bound; offset null where the two are the same clock.
    "clock": _columns(utc_ns=int, offset_ns=int, bound_ns=int),
}
"""Table name -> column -> type, without `run, node, worker, t_ns`; documented in docs/reference/traces.md."""

COVERING = ("throughput", "channel", "latency", "executor", "cpu")
"""Tables whose rows are about the time from `since_ns` on; null in rows of sensors that do not say it."""

FILES = "*.trace"
"""Pattern of the trace files in a folder."""

PREFIX = Struct("<II")
"""Length and CRC-32 of a record."""

_MOST_STARTS = 10_000
"""Most files per process, one for each start."""


class Head(NamedTuple):
    """First record of a file: the process that wrote it, and its tables with their columns."""

    run: str
    node: str
    worker: int
    columns: Mapping[str, Sequence[str]]


NAMES: Mapping[str, Sequence[str]] = {table: tuple(columns) for table, columns in COLUMNS.items()}

_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


def _plain(value: Any) -> Any:
    """Convert a value of a subclass or of NumPy, which sensors may give, to one of Python's own."""
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no type of a column")


_encoder = msgspec.msgpack.Encoder(enc_hook=_plain)


def _decoder(columns: Mapping[str, type]) -> msgspec.msgpack.Decoder[Any]:
    row = [_Int64, *[(_Int64 if kind is int else kind) | None for kind in columns.values()]]
    return msgspec.msgpack.Decoder(list.__class_getitem__(tuple.__class_getitem__(tuple(row))))


_DECODERS = {table: _decoder(columns) for table, columns in COLUMNS.items()}


class TraceWriter:
    """Writer for the rows of one process; after `flush` they survive a crash of this process.

    Several threads may add rows, also during a flush. `flush` blocks its caller until the rows are written.
    """

    def __init__(self, folder: Path, run: str, node: str, worker: int) -> None:
        self._folder = folder
        self._head = Head(run, node, worker, NAMES)
        self._rows: dict[str, list[tuple[Any, ...]]] = {}
        self._file: FileIO | None = None
        self._adding, self._writing = threading.Lock(), threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, table: str, t_ns: int, *values: Any) -> None:
        """Add one row; `values` in the order of the table's columns after the key."""
        with self._adding:
            self._rows.setdefault(table, []).append((t_ns, *values))

    def check(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Check rows from third-party code before `add`.

        Args:
            table: its name.
            rows: `t_ns` and the values of each.

        Raises:
            RunError: there is no such table, or the values do not fit its columns.
        """
        if table not in COLUMNS:
            raise RunError(f"there is no trace table {table!r}{nearest(table, COLUMNS)}")
        columns = NAMES[table]
        for row in rows:
            if len(row) != len(columns) + 1:
                names = ", ".join(columns)
                raise RunError(f"table {table} has {len(columns)} columns ({names}), the row has {len(row) - 1} values")
        try:
            _DECODERS[table].decode(_encoder.encode(rows))
        except (msgspec.MsgspecError, ValueError, OverflowError, TypeError) as fault:
            raise RunError(f"a row does not fit table {table}: {fault}: {repr(rows)[:200]}") from None

    def flush(self) -> None:
        """Write all rows added so far, as one record.

        Raises:
            OSError: they cannot be written; these and all later rows are lost.
        """
        with self._writing:
            with self._adding:
                taken, self._rows = self._rows, {}
            if not taken:
                return
            records = [taken] if self._file is not None else [self._head, taken]
            sink = self._file = self._file or self._new_file()
            packed = [_encoder.encode(record) for record in records]
            left = memoryview(
                b"".join([piece for data in packed for piece in (PREFIX.pack(len(data), crc32(data)), data)])
            )
            while left:
                left = left[sink.write(left) :]

    def close(self) -> None:
        """Flush and close the file.

        Raises:
            OSError: the last rows cannot be written; the file is closed nevertheless.
        """
        try:
            self.flush()
        finally:
            if self._file is not None:
                self._file.close()

    def _new_file(self) -> FileIO:
        # Files of earlier starts of the same run on this slot are kept.
        stem = f"{self._head.node}-{self._head.worker}"
        for number in range(_MOST_STARTS):
            path = self._folder / f"{stem}-{number}{FILES[1:]}"
            with suppress(FileExistsError):
                return path.open("xb", buffering=0)
        raise FileExistsError(f"{self._folder} holds {_MOST_STARTS} files of {stem}")

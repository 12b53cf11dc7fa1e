"""Reports of executors on an engine (`millrace.Reporter`): their totals so far, and rows of our trace tables.

A process writes one file; a row has totals since its start. Whoever receives counts, so that the rows of a channel are
those that arrived. In the trace they belong to the sender, as those of our own workers.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agents.protocol import Slot
from agents.trace import TraceWriter
from analysis.measure.backlog import BacklogStage, rows_left
from analysis.records.interval_metrics import Draining
from controller.coordinator.interfaces import Offset
from inventory.errors import RunError
from workloads.topology import Executor, Topology

Channel = tuple[str, str, str]
"""Sender, receiver, stream."""

SUFFIX = ".tsv"


@dataclass
class Totals:
    """The last totals of an executor, and their time on the clock of its node.

    Attributes:
        t_ns: the time.
        processed: rows processed.
        records: of a source, records emitted, each with any number of rows.
        late_ns: of a source, how late the last record was.
        due: of a source, records due by then.
        cpu_ns: CPU time of its thread.
    """

    t_ns: int = 0
    processed: int = 0
    records: int | None = None
    late_ns: int | None = None
    due: int | None = None
    cpu_ns: int = 0


@dataclass
class _Process:
    """A file of reports that is being read."""

    path: Path
    slot: Slot
    pid: int
    read: int = 0
    lines: int = 0
    finished: bool = False


@dataclass
class _Written:
    """Totals of an executor that are in the trace."""

    emitted: int = 0
    totals: Totals = field(default_factory=Totals)


class Reports:
    """All reports of a run; `read` takes in what is new.

    Attributes:
        places: executor -> worker, of executors that have opened.
        totals: executor -> its last totals.
        sent: (executor, stream) -> rows sent.
        received: channel -> rows received.
        failures: what executors have reported as errors.
        offset: returns the offset of a node's clock from this host's; reports and traces have the times of their node.
    """

    def __init__(self, folder: Path, run: str, topology: Topology, traces: Path | None = None) -> None:
        """Prepare to read the reports in `folder`; their rows go to traces of `run` in the folder `traces`."""
        self._folder, self._run, self._traces = folder, run, traces
        self._roles = {
            component.id: "spout" if component.kind == "spout" else "bolt" if component.outputs else "sink"
            for component in topology.components
        }
        self._processes: dict[str, _Process] = {}
        self._writers: dict[Slot, TraceWriter] = {}
        self._written: defaultdict[str, _Written] = defaultdict(_Written)
        self.places: dict[str, Slot] = {}
        self.totals: dict[str, Totals] = {}
        self.sent: dict[tuple[str, str], int] = {}
        self.received: dict[Channel, int] = {}
        self._latencies: dict[tuple[str, int], int] = {}
        self.failures: list[str] = []
        self.offset: Callable[[str], Offset] = lambda node: Offset(0, 0)

    def read(self) -> int:
        """Read what has been written since the last call; return the number of new lines.

        Raises:
            RunError: a worker was started a second time, or a line is not one of a report.
        """
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            if path.name not in self._processes:
                node, slot, pid = path.name.removesuffix(SUFFIX).rsplit("-", 2)
                worker = Slot(node, int(slot))
                if any(process.slot == worker for process in self._processes.values()):
                    raise RunError(f"worker {slot} of {node} ended in the middle of the run, and was started again")
                self._processes[path.name] = _Process(path, worker, int(pid))
        return sum(self._read(process) for process in self._processes.values())

    @property
    def finished(self) -> bool:
        """Return whether all processes have written their answers."""
        return all(process.finished for process in self._processes.values())

    @property
    def pids(self) -> Mapping[Slot, int]:
        """Worker -> id of its process, in its own process namespace."""
        return {process.slot: process.pid for process in list(self._processes.values())}

    @property
    def lines(self) -> Mapping[Slot, int]:
        """Worker -> number of lines of its report so far."""
        return {process.slot: process.lines for process in self._processes.values()}

    def emitted(self, executor: str) -> int:
        """Return the number of records that a source has emitted, or of rows that a bolt has sent, each once."""
        if self._roles[Executor.named(executor).component] == "spout":
            return self.totals.get(executor, Totals()).records or 0
        return sum(rows for (name, _), rows in self.sent.items() if name == executor)

    def close(self) -> None:
        """Write the rows of the traces to disk."""
        for writer in self._writers.values():
            writer.close()

    def _read(self, process: _Process) -> int:
        with process.path.open("rb") as file:
            file.seek(process.read)
            appended = file.read()
        complete = appended[: appended.rfind(b"\n") + 1]
        process.read += len(complete)
        lines = complete.decode("utf-8", "replace").split("\n")[:-1]
        for line in lines:
            try:
                self._take(process, *line.split("\t"))
            except (ValueError, TypeError, KeyError):
                raise RunError(f"{process.path.name}: not a line of a report: {line[:200]!r}") from None
        process.lines += len(lines)
        return len(lines)

    def _take(self, process: _Process, kind: str, t_ns: str, *fields: str) -> None:
        at_ns = int(t_ns)
        match kind, *fields:
            case "totals", executor, processed, records, late, due, cpu_ns:
                emitted, late_ns, due_by_now = map(_optional, (records, late, due))
                totals = Totals(at_ns, int(processed), emitted, late_ns, due_by_now, int(cpu_ns))
                self.totals[executor] = totals
                self._write_totals(executor, totals)
            case "sent", executor, stream, rows:
                self.sent[executor, stream] = int(rows)
            case "channel", target, source, stream, rows:
                channel = source, target, stream
                self._write_channel(channel, at_ns, int(rows) - self.received.get(channel, 0))
                self.received[channel] = int(rows)
            case "latency", executor, value_ns, count:
                key = executor, int(value_ns)
                added = int(count) - self._latencies.get(key, 0)
                self._latencies[key] = int(count)
                since_ns = self._written[executor].totals.t_ns
                self._add(self.places[executor], "latency", at_ns, executor, int(value_ns), added, since_ns)
            case "open", executor:
                self.places[executor] = process.slot
                # The first rows cover the time since then.
                self._written[executor].totals.t_ns = at_ns
            case ("finished",):
                process.finished = True
            case "failed", text:
                self.failures.append(text)
            case _:
                raise ValueError(kind)

    def _write_totals(self, executor: str, totals: Totals) -> None:
        written, slot = self._written[executor], self.places[executor]
        before, emitted = written.totals, self.emitted(executor)
        component = Executor.named(executor).component
        is_spout = self._roles[component] == "spout"
        self._add(
            slot,
            "throughput",
            totals.t_ns,
            executor,
            component,
            self._roles[component],
            emitted - written.emitted,
            totals.processed - before.processed,
            totals.late_ns,
            totals.due,
            0 if is_spout else None,
            before.t_ns,
        )
        self._add(slot, "executor", totals.t_ns, executor, totals.cpu_ns - before.cpu_ns, None, None, before.t_ns)
        self._written[executor] = _Written(emitted, totals)

    def _write_channel(self, channel: Channel, at_ns: int, rows: int) -> None:
        source, target, stream = channel
        here, there = self.places[source], self.places[target]
        hop = "intra_worker" if here == there else "inter_worker" if here.node == there.node else "inter_node"
        since_ns = self._written[target].totals.t_ns
        if hop == "inter_node":
            ahead_ns = self.offset(here.node).offset_ns - self.offset(there.node).offset_ns
            since_ns, at_ns = since_ns + ahead_ns, at_ns + ahead_ns
        self._add(here, "channel", at_ns, source, target, stream, hop, there.node, rows, None, None, since_ns)

    def _add(self, slot: Slot, table: str, t_ns: int, *values: object) -> None:
        if self._traces is None:
            return
        if slot not in self._writers:
            self._writers[slot] = TraceWriter(self._traces, self._run, slot.node, slot.index)
        self._writers[slot].add(table, t_ns, *values)


def missing_rows(topology: Topology, reports: Reports) -> Iterator[str]:
    """Yield what is not emitted, has not arrived or is not processed yet, as text; nothing when drained."""
    for component in topology.components:
        if component.kind == "spout":
            for name in (each.name for each in topology.executors_of(component.id)):
                due = reports.totals.get(name, Totals()).due or 0
                if (left := due - reports.emitted(name)) > 0:
                    yield f"{left} of {due} records of {name} are not emitted"
    arrived: defaultdict[tuple[str, str, str], int] = defaultdict(int)
    into: defaultdict[str, int] = defaultdict(int)
    for (source, target, stream), rows in reports.received.items():
        arrived[source, stream, Executor.named(target).component] += rows
        into[target] += rows
    for sender, receiver, entry in topology.links():
        copies = receiver.parallelism if entry.grouping == "all" else 1
        for executor in topology.executors_of(sender.id):
            wanted = reports.sent.get((executor.name, entry.stream), 0) * copies
            count = arrived[executor.name, entry.stream, receiver.id]
            if count != wanted:
                yield f"{wanted - count} of {wanted} rows from {executor.name} to {receiver.id}"
    for name, rows in into.items():
        processed = reports.totals[name].processed if name in reports.totals else 0
        if processed != rows:
            yield f"{rows - processed} of {rows} rows at {name} are not processed"


def draining(topology: Topology, reports: Reports) -> Draining:
    """Return what a topology has yet to do."""
    stages, flows = dict[str, BacklogStage](), dict[tuple[str, str], float]()
    wanted: Counter[str] = Counter()
    for sender, receiver, entry in topology.links():
        copies = receiver.parallelism if entry.grouping == "all" else 1
        rows = sum(reports.sent.get((each.name, entry.stream), 0) for each in topology.executors_of(sender.id)) * copies
        wanted[receiver.id] += rows
        flows[sender.id, receiver.id] = flows.get((sender.id, receiver.id), 0.0) + rows
    emitted, due = 0, 0
    for component in topology.components:
        names = [each.name for each in topology.executors_of(component.id)]
        totals = [reports.totals[name] for name in names if name in reports.totals]
        if component.kind == "spout":
            here = sum(reports.emitted(name) for name in names)
            there = sum(each.due or 0 for each in totals)
            emitted, due = emitted + here, due + there
            stages[component.id] = BacklogStage(here, max(0, there - here))
        else:
            here = sum(each.processed for each in totals)
            stages[component.id] = BacklogStage(here, max(0, wanted[component.id] - here))
    return Draining(
        rows=round(rows_left(stages, flows)),
        waiting={component: round(stage.waiting) for component, stage in sorted(stages.items())},
        emitted_records=emitted,
        due_records=due,
    )


def read_answer(folder: Path) -> list[tuple[str, int]]:
    """Return the words in all answers of a folder, with their counts.

    Raises:
        RunError: a file is not an answer.
    """
    rows = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
            word, tab, count = line.partition("\t")
            if not tab or not count.isdecimal():
                raise RunError(f"{path.name}: not a row of an answer: {line[:200]!r}")
            rows.append((word, int(count)))
    return rows


def _optional(text: str) -> int | None:
    return int(text) if text else None

"""Data plane without sockets, processes or time: a test chooses everything that could happen by chance.

A `Pipe` replaces a link: the test decides when bytes come out, and in which pieces. A `ScriptedStore` replaces the
disk. `ScriptedRun` builds the tasks of all workers of a run from one `RunSpec` and connects them by pipes; executors,
channels, codec, frames, dispatch, barriers and moves are real.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import msgspec

from agents.protocol import Connect, Connected, ExecutorSpec, Go, Mark, Message, RunSpec, Slot, workers_of
from agents.protocol.node_folders import NodeFolder
from agents.worker.channels import channel
from agents.worker.channels.channel import ChannelId, CreditWindow, Incoming, Outgoing
from agents.worker.channels.linger import MAX_LINGER_NS, FlushTimer
from agents.worker.executors import executor
from agents.worker.executors.executor import RunningExecutor, Snapshot
from agents.worker.executors.spout import SpoutExecutor
from agents.worker.task_graph import builder, state_copies
from agents.worker.task_graph.epoch import EpochTasks
from agents.worker.task_graph.interfaces import AnswerRows
from agents.worker.task_graph.plan import RunPlan
from agents.worker.task_graph.registry import TaskRegistry
from agents.worker.wire.frame import Frame, FrameReader
from workloads.key_groups import first_ownership
from workloads.operators import Operator, Row
from workloads.topology import Topology

_FOLDER = NodeFolder(Path()).run("scripted")

LAST = f"{_FOLDER.answers}/999999999-"
"""Prefix of answer parts that no checkpoint settles; they sort after all barriers."""


def _barrier_of(name: str) -> int:
    """Return the barrier of a snapshot or of an answer part."""
    below = Path(name).relative_to(_FOLDER.path)
    return int(below.parts[1].partition("-")[0])


Files = dict[str, Any]
"""Files of a node in memory, by name: snapshots and answer parts."""


class ScriptedStore:
    """A worker's store on its node's disk; a test decides when writes complete."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._coming: deque[tuple[int, str, Snapshot, Sequence[AnswerRows]]] = deque()

    def read(self, barrier: int, executor: str) -> Snapshot:
        """See `interfaces.Store.read`; the snapshot is encoded and decoded on the way."""
        kept = self.files[str(_FOLDER.snapshot(barrier, executor))]
        assert isinstance(kept, Snapshot)
        return Snapshot.read(b"".join(kept.pieces()))

    def save(self, barrier: int, executor: str, snapshot: Snapshot, settled: Sequence[AnswerRows] = ()) -> None:
        """See `interfaces.Store.save`."""
        self._coming.append((barrier, executor, snapshot, settled))

    def delete_before(self, before: int) -> None:
        """See `interfaces.Store.delete_before`."""
        for name in [name for name in self.files if _barrier_of(name) < before]:
            del self.files[name]

    def write_answer(self, executor: str, answer: AnswerRows) -> Mapping[str, tuple[str, ...]]:
        """See `interfaces.Store.write_answer`."""
        name = f"{LAST}{executor}@{answer.table}"
        self.files[name] = answer
        return {answer.table: (name,)}

    def work(self, tasks: EpochTasks) -> bool:
        """Complete one write; return whether there was one."""
        if not self._coming:
            return False
        barrier, executor, snapshot, settled = self._coming.popleft()
        name = str(_FOLDER.snapshot(barrier, executor))
        self.files[name] = snapshot
        answers: dict[str, tuple[str, ...]] = {}
        for part in settled:
            file = f"{_FOLDER.answers}/{barrier}-{executor}@{part.table}"
            answers[part.table] = (file,)
            self.files[file] = part
        nbytes = sum(map(len, snapshot.pieces()))
        tasks.stored(barrier, executor, name, nbytes, snapshot.position, answers)
        return True


CHUNKS = (1, 23, 24, 25, 300, 1 << 30)
"""Numbers of bytes that pipes transfer: around the size of a header, and everything."""


class Pipe:
    """One direction of a link: a `Wire` for its sender, and the frames that arrive at its receiver."""

    def __init__(self, epoch: int) -> None:
        self._bytes = bytearray()
        self._reader = FrameReader(epoch)

    def __len__(self) -> int:
        return len(self._bytes)

    def write(self, pieces: list[bytes]) -> None:
        """Accept bytes from the sender."""
        self._bytes += b"".join(pieces)

    def transfer(self, most: int) -> list[Frame]:
        """Move at most `most` bytes to the receiver; return the frames that they complete."""
        moved = bytes(self._bytes[:most])
        del self._bytes[:most]
        return list(self._reader.feed(moved))


@dataclass(frozen=True)
class Limits:
    """Small limits, so that few rows reach every boundary."""

    batch_rows: int = 4
    batch_bytes: int = 200
    window_rows: int = 6
    window_bytes: int = 400
    turn_rows: int = 5
    stride: int = 5
    piece_bytes: int = 60
    round_bytes: int = 60
    sorted_keys: int = 5

    @classmethod
    def random(cls, random: Random) -> "Limits":
        return cls(
            batch_rows=random.randint(1, 6),
            window_rows=random.randint(1, 12),
            window_bytes=random.choice([50, 400, 100_000]),
            turn_rows=random.randint(1, 8),
            piece_bytes=random.choice([40, 200, 100_000]),
            round_bytes=random.choice([40, 200, 100_000]),
        )

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Replace the real limits within the block."""
        with ExitStack() as stack:
            for target, values in (
                (channel, {"BATCH_ROWS": self.batch_rows, "BATCH_BYTES": self.batch_bytes}),
                (builder, {"window": lambda *_asked: CreditWindow(self.window_rows, self.window_bytes)}),
                (SpoutExecutor, {"MAX_ROWS": self.turn_rows}),
                (executor, {"FIRST_STRIDE": self.stride}),
                (state_copies, self._of_copies),
            ):
                stack.enter_context(mock.patch.multiple(target, **values))
            yield

    @property
    def _of_copies(self) -> Mapping[str, int]:
        return {
            "FIRST_KEYS": 1,
            "PIECE_BYTES": self.piece_bytes,
            "SMALL_ROUND_BYTES": self.round_bytes,
            "SORTED_KEYS": self.sorted_keys,
        }


def run_spec(
    topology: Topology,
    places: Sequence[Slot],
    seed: int = 0,
    epoch: int = 1,
    rate: Mapping[str, object] | None = None,
) -> RunSpec:
    """Return a run of `topology` with its executors at `places`, in their order."""
    placed = zip(topology.executors, places, strict=True)
    executors = tuple(ExecutorSpec(executor.component, executor.index, place) for executor, place in placed)
    return RunSpec(
        run="scripted",
        epoch=epoch,
        workload="scripted",
        params={},
        topology=msgspec.to_builtins(topology),
        executors=executors,
        workers=workers_of(executors),
        owners=first_ownership(topology.keyed),
        addresses={place.node: "127.0.0.1" for place in places},
        key="00" * 32,
        rate=rate or {"kind": "max"},
        seed=seed,
    )


@dataclass(frozen=True)
class Worker:
    """One worker of a scripted run; `reports` are its reports to the controller."""

    place: Slot
    tasks: EpochTasks
    flush_timer: FlushTimer
    store: ScriptedStore
    reports: list[Message] = field(default_factory=list)

    @property
    def registry(self) -> TaskRegistry:
        """The worker's tasks."""
        return self.tasks.registry


Ends = tuple[int, int, int]
"""Epoch, and the numbers of the workers at both ends of a pipe."""


class _Links:
    """Links of one worker: pipes, established on first use."""

    complete = True

    def __init__(self, run: "ScriptedRun", epoch: int, me: int) -> None:
        self._run, self._epoch, self._me = run, epoch, me

    def wire(self, peer: int) -> Pipe:
        return self._run.pipes.setdefault((self._epoch, self._me, peer), Pipe(self._epoch))

    def connect(self, peers: set[int], places: Sequence[Slot], ports: Mapping[str, int]) -> None:
        for peer in peers:
            self.wire(peer)


class _Clocks:
    """Wall clock and CPU clock of a worker, which a test advances."""

    def __init__(self, run: "ScriptedRun", place: Slot) -> None:
        self._run, self._place = run, place

    def now_ns(self) -> int:
        return self._run.clock_ns(self._place)

    cpu_ns = now_ns


@contextmanager
def scripted_run(
    spec: RunSpec,
    operator: Callable[[str], Operator],
    limits: Limits = Limits(),
    inputs: Mapping[str, str] | None = None,
) -> Iterator["ScriptedRun"]:
    """Create a run with small limits whose sources have started at time 0."""
    with limits.applied():
        run = ScriptedRun(operator, limits, inputs)
        for place in spec.workers:
            run.add(spec, place)
        for place in spec.workers:
            run.command(place, Connect(epoch=spec.epoch, ports={}))
            run.command(place, Go(epoch=spec.epoch, at_ns=0))
        yield run


class ScriptedRun:
    """All workers of a run in this thread; only `act`, `sweep` and `run` advance it."""

    def __init__(
        self, operator: Callable[[str], Operator], limits: Limits, inputs: Mapping[str, str] | None = None
    ) -> None:
        self._operator, self.limits, self._inputs = operator, limits, inputs or {}
        self.now_ns = 0
        self.clock_ns: Callable[[Slot], int] = lambda _place: self.now_ns  # by the clock of a worker's node
        self.pipes: dict[Ends, Pipe] = {}
        self.workers: dict[Slot, Worker] = {}
        self._places: dict[int, Sequence[Slot]] = {}

    def add(
        self,
        spec: RunSpec,
        place: Slot,
        files: Files | None = None,
        before: Callable[[Slot, Message], None] = lambda _place, _message: None,
    ) -> Worker:
        """Start a worker; `before` is called with each report before it is sent."""
        me = spec.workers.index(place)
        self._places[spec.epoch] = spec.workers
        flush_timer, reports, store = (
            FlushTimer(MAX_LINGER_NS),
            list[Message](),
            ScriptedStore({} if files is None else files),
        )
        flush_timer.now_ns = self.clock_ns(place)
        links, clocks = _Links(self, spec.epoch, me), _Clocks(self, place)

        def send(message: Message) -> None:
            before(place, message)
            reports.append(message)

        tasks = EpochTasks(spec, place, self._operator, self._inputs, flush_timer, links, store, clocks, send)
        self.workers[place] = Worker(place, tasks, flush_timer, store, reports)
        return self.workers[place]

    def remove(self, place: Slot) -> None:
        """End a worker; bytes in its pipes are lost."""
        tasks = self.workers.pop(place).tasks
        for ends in [ends for ends in self.pipes if ends[0] == tasks.epoch and tasks.me in ends[1:]]:
            del self.pipes[ends]

    def are_linked(self, place: Slot, other: Slot) -> bool:
        """Return whether two workers of one epoch have a link."""
        a, b = self.workers[place].tasks, self.workers[other].tasks
        return a.epoch == b.epoch and bool({(a.epoch, a.me, b.me), (a.epoch, b.me, a.me)} & self.pipes.keys())

    @property
    def plan(self) -> RunPlan:
        """Plan of the run in its first worker."""
        return next(iter(self.workers.values())).tasks.plan

    @property
    def _running(self) -> list[tuple[Worker, RunningExecutor]]:
        return [(worker, running) for worker in self.workers.values() for running in worker.registry.executors]

    @property
    def executors(self) -> dict[str, RunningExecutor]:
        """Executors of all workers, by name."""
        return {running.executor.name: running for _, running in self._running}

    @property
    def spouts(self) -> list[SpoutExecutor]:
        """All spout executors."""
        return [running for _, running in self._running if isinstance(running, SpoutExecutor)]

    @property
    def drained(self) -> bool:
        """Whether every executor has ended and its output has left."""
        return all(running.drained for _, running in self._running)

    def channels(self) -> Iterator[tuple[ChannelId, Outgoing, Incoming]]:
        """Yield both ends of every channel; only while nothing moves."""
        for worker in self.workers.values():
            for key, outgoing in worker.registry.outgoing.items():
                there = self.workers[self._places[worker.tasks.epoch][outgoing.peer]]
                yield key, outgoing, there.registry.incoming[key]

    # --- actions -------------------------------------------------------------------------------------------

    def turn(self, at: int) -> bool:
        """Run one turn of an executor."""
        worker, running = self._running[at % len(self._running)]
        worker.flush_timer.now_ns = self.clock_ns(worker.place)
        ran = running.turn(self.clock_ns(worker.place))
        self._after(worker)
        return ran

    def turn_all(self, place: Slot, random: Random) -> bool:
        """Run one turn of every executor of a worker, in random order."""
        worker = self.workers[place]
        worker.flush_timer.now_ns = self.clock_ns(worker.place)
        executors = list(worker.registry.executors)
        random.shuffle(executors)
        ran = sum(running.turn(self.clock_ns(worker.place)) for running in executors) > 0
        self._after(worker)
        return ran

    def age(self, place: Slot, by_ns: int) -> bool:
        """Advance time, and let one worker flush old batches."""
        self.now_ns += by_ns
        worker = self.workers[place]
        worker.flush_timer.now_ns = self.clock_ns(worker.place)
        before = sum(outgoing.tuples for outgoing in worker.registry.senders)
        worker.flush_timer.flush_old()
        self._after(worker)
        return before != sum(outgoing.tuples for outgoing in worker.registry.senders)

    def transfer(self, epoch: int, source: int, target: int, most: int) -> bool:
        """Move at most so many bytes between two workers, by number, once the receiver is in the epoch."""
        pipe = self.pipes.get((epoch, source, target))
        worker = self.workers.get(self._places[epoch][target])
        if not pipe or worker is None or worker.tasks.epoch != epoch:
            return False
        worker.flush_timer.now_ns = self.clock_ns(worker.place)
        for received in pipe.transfer(most):
            worker.tasks.take(received, source)
        self._after(worker)
        return True

    def store(self, place: Slot) -> bool:
        """Let a worker's disk complete one write."""
        return self.workers[place].store.work(self.workers[place].tasks)

    def command(self, place: Slot, command: Message) -> None:
        """Let a worker handle a command of the controller."""
        worker = self.workers[place]
        worker.flush_timer.now_ns = self.clock_ns(worker.place)
        match command:
            case Connect(ports=ports):
                worker.tasks.connect(ports)
                worker.tasks.linked()
                worker.reports.append(Connected(epoch=worker.tasks.epoch, slot=place.index))
            case Mark():
                pass
            case _:
                worker.tasks.handle_command(command)
        self._after(worker)

    def _after(self, worker: Worker) -> None:
        worker.tasks.after_turns()
        if worker.tasks.is_over:
            worker.tasks.finish()

    def answer(self, table: str) -> list[Row]:
        """Return all rows of a table of the answer, once the run has drained."""
        files = [file for worker in self.workers.values() for file in worker.store.files.values()]
        return [row for file in files if isinstance(file, AnswerRows) and file.table == table for row in file.rows]

    def _actions(self, chunk: int, by_ns: int) -> list[Callable[[], bool]]:
        actions: list[Callable[[], bool]] = [partial(self.turn, at) for at in range(len(self._running))]
        actions += [partial(self.age, place, by_ns) for place in self.workers]
        actions += [partial(self.transfer, *ends, chunk) for ends in list(self.pipes)]
        actions += [partial(self.store, place) for place in self.workers]
        return actions

    def act(self, choice: int) -> None:
        """Perform one action, selected by `choice` (any number >= 0)."""
        choice, chunk = divmod(choice, len(CHUNKS))
        choice, late = divmod(choice, 2)
        actions = self._actions(CHUNKS[chunk], MAX_LINGER_NS * late)
        actions[choice % len(actions)]()

    def sweep(self, random: Random, by_ns: int = 0) -> bool:
        """Perform every action once, in random order; return whether one had an effect."""
        actions = self._actions(random.choice(CHUNKS), by_ns)
        random.shuffle(actions)
        return sum(action() for action in actions) > 0

    def run(self, script: Sequence[int], seed: int) -> None:
        """Follow the script, then perform all actions until nothing changes; check that the run has drained."""
        random = Random(seed)  # noqa: S311 - it must be repeatable
        for choice in script:
            self.act(choice)
            self.check()
        while self.sweep(random) or self.sweep(random, MAX_LINGER_NS):
            self.check()
        self.check_drained()

    # --- invariants ----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check that receivers hold no more than the window, and that senders stay within it."""
        for key, outgoing, incoming in self.channels():
            queue = incoming._inbox
            parts = (queue._queue, *queue._aside.values(), *queue._behind.values())
            queued = sum(len(entry.rows) for part in parts for entry in part if entry.channel is incoming)
            assert outgoing._credit_rows >= 0, key
            assert queued + incoming._rows <= self._window_rows(outgoing) - outgoing._credit_rows, key

    def _window_rows(self, outgoing: Outgoing) -> int:
        return self.limits.window_rows * outgoing._most_batches

    def check_drained(self) -> None:
        """Check that nothing is left after draining, and that all credit has returned."""
        assert not [running.executor.name for _, running in self._running if not running.drained]
        assert not any(self.pipes.values())
        for key, outgoing, incoming in self.channels():
            assert not outgoing.pending, key
            assert not incoming._inbox, key
            assert outgoing._credit_rows + incoming._rows == self._window_rows(outgoing), key
            assert outgoing._credit_bytes + incoming._bytes == self.limits.window_bytes, key

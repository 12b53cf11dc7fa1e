"""The data plane without sockets, processes or time: everything that could happen by chance is chosen by the test.

`Pipe` stands where a link would: bytes go in, and come out when and in pieces as the test says. `ScriptedRun` builds
all workers of a run from one `RunSpec` and joins them by pipes; executors, channels, codec, frames and dispatch are the
real ones.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from unittest import mock

import msgspec

from agents.protocol import ExecutorSpec, Place, RunSpec, workers_of
from agents.worker import assembly, channel, latency
from agents.worker.assembly import Assembly, ChannelKey, assemble
from agents.worker.channel import FLUSH_AGE_NS, Ager, Incoming, LocalOutgoing, Outgoing
from agents.worker.executor import Running, SpoutExecutor
from agents.worker.frame import Frame, FrameReader
from agents.worker.plan import RunPlan
from workloads.operators import Operator
from workloads.rates import Schedule
from workloads.topology import Topology

CHUNKS = (1, 23, 24, 25, 300, 1 << 30)
"""Sizes of pieces that pipes move: around a header's border, and all there is."""


class Pipe:
    """One direction of a link: a `Wire` for its sender, and the frames that arrive for its receiver."""

    def __init__(self, epoch: int) -> None:
        self._bytes = bytearray()
        self._reader = FrameReader(epoch)

    def __len__(self) -> int:
        return len(self._bytes)

    def write(self, pieces: list[bytes]) -> None:
        """Take bytes from the sender."""
        self._bytes += b"".join(pieces)

    def carry(self, most: int) -> list[Frame]:
        """Move at most `most` bytes to the receiver; return the frames that are complete with them."""
        moved = bytes(self._bytes[:most])
        del self._bytes[:most]
        return list(self._reader.feed(moved))


class _End:
    """The side of two pipes that one worker holds: what its channels know as their wire."""

    def __init__(self, out: Pipe) -> None:
        self.write = out.write


@dataclass(frozen=True)
class Limits:
    """Sizes that a test makes small, so that few rows meet every border."""

    batch_rows: int = 4
    batch_bytes: int = 200
    window_rows: int = 6
    window_bytes: int = 400
    turn_rows: int = 5
    stride: int = 5

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let these take the place of the real ones."""
        with ExitStack() as stack:
            for target, values in (
                (channel, {"BATCH_ROWS": self.batch_rows, "BATCH_BYTES": self.batch_bytes}),
                (assembly, {"window": lambda _channels: (self.window_rows, self.window_bytes)}),
                (SpoutExecutor, {"MOST_ROWS": self.turn_rows}),
                (latency, {"FIRST_STRIDE": self.stride}),
            ):
                stack.enter_context(mock.patch.multiple(target, **values))
            yield


def run_spec(topology: Topology, places: Sequence[Place], seed: int = 0, epoch: int = 1) -> RunSpec:
    """A run of `topology` with its executors at `places`, in their order."""
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
        addresses={place.node: "127.0.0.1" for place in places},
        key="00" * 32,
        rate={"kind": "max"},
        seed=seed,
    )


@dataclass(frozen=True)
class Worker:
    """One worker of a scripted run."""

    place: Place
    ager: Ager
    assembly: Assembly


@contextmanager
def scripted_run(
    spec: RunSpec,
    operator: Callable[[str], Operator],
    limits: Limits = Limits(),
    schedule: Schedule | None = None,
) -> Iterator["ScriptedRun"]:
    """A run with small limits; its sources have started at time 0."""
    with limits.applied():
        yield ScriptedRun(spec, operator, limits, schedule)


class ScriptedRun:
    """All workers of a run in this thread; nothing happens but what `act`, `sweep` and `run` make happen."""

    def __init__(
        self, spec: RunSpec, operator: Callable[[str], Operator], limits: Limits, schedule: Schedule | None
    ) -> None:
        self.plan = RunPlan(spec)
        self.limits = limits
        self.now_ns = 0
        places = self.plan.places
        self._pipes = {(a, b): Pipe(spec.epoch) for a in places for b in places if a != b}
        self.workers = {place: self._worker(place, operator, schedule) for place in places}
        self._running = [(worker, running) for worker in self.workers.values() for running in worker.assembly.executors]
        for spout in self.spouts:
            spout.start(0)

    def _worker(self, place: Place, operator: Callable[[str], Operator], schedule: Schedule | None) -> Worker:
        ager = Ager()

        def wire(other: Place) -> Pipe:
            return self._pipes[place, other]

        return Worker(place, ager, assemble(self.plan, place, wire, ager, operator, schedule, {}))

    @property
    def executors(self) -> dict[str, Running]:
        """All executors of all workers, by name."""
        return {running.executor.name: running for _, running in self._running}

    @property
    def spouts(self) -> list[SpoutExecutor]:
        """All spout executors."""
        return [running for _, running in self._running if isinstance(running, SpoutExecutor)]

    @property
    def drained(self) -> bool:
        """Whether every executor has ended and everything it emitted has left."""
        return all(running.drained for _, running in self._running)

    def channels(self) -> Iterator[tuple[ChannelKey, Outgoing, Incoming]]:
        """Both ends of every channel, wherever they are."""
        for worker in self.workers.values():
            for key, outgoing in worker.assembly.outgoing.items():
                if isinstance(outgoing, LocalOutgoing):
                    yield key, outgoing, outgoing._receiver_end
                else:
                    there = self.workers[self.plan.place[outgoing.receiver]]
                    yield key, outgoing, there.assembly.incoming[key]

    # --- what can happen -----------------------------------------------------------------------------------

    def turn(self, at: int) -> bool:
        """Give an executor a turn."""
        worker, running = self._running[at]
        worker.ager.now_ns = self.now_ns
        return running.turn(self.now_ns)

    def age(self, place: Place, by_ns: int) -> bool:
        """Let time pass, and one worker look at its old batches."""
        self.now_ns += by_ns
        worker = self.workers[place]
        worker.ager.now_ns = self.now_ns
        before = sum(outgoing.tuples for outgoing in worker.assembly.outgoing.values())
        worker.ager.flush_old()
        return before != sum(outgoing.tuples for outgoing in worker.assembly.outgoing.values())

    def carry(self, source: Place, target: Place, most: int) -> bool:
        """Move at most so many bytes from one worker to another."""
        pipe, worker = self._pipes[source, target], self.workers[target]
        worker.ager.now_ns = self.now_ns
        had = len(pipe)
        for received in pipe.carry(most):
            # A link is one thing for both directions; here it goes by the name of what its worker writes to.
            worker.assembly.take(received, self._pipes[target, source])
        return had > 0

    def _actions(self, chunk: int, by_ns: int) -> list[Callable[[], bool]]:
        actions: list[Callable[[], bool]] = [partial(self.turn, at) for at in range(len(self._running))]
        actions += [partial(self.age, place, by_ns) for place in self.workers]
        actions += [partial(self.carry, *ends, chunk) for ends in self._pipes]
        return actions

    def act(self, choice: int) -> None:
        """Do one thing, which `choice` (any number >= 0) decides."""
        choice, chunk = divmod(choice, len(CHUNKS))
        choice, late = divmod(choice, 2)
        actions = self._actions(CHUNKS[chunk], FLUSH_AGE_NS * late)
        actions[choice % len(actions)]()

    def sweep(self, random: Random, by_ns: int = 0) -> bool:
        """Let everything happen once, in random order; return whether anything came of it."""
        actions = self._actions(random.choice(CHUNKS), by_ns)
        random.shuffle(actions)
        return sum(action() for action in actions) > 0

    def run(self, script: Sequence[int], seed: int) -> None:
        """Follow the script, then be fair until nothing more can happen; by then everything must have drained."""
        random = Random(seed)  # noqa: S311 - it must be repeatable
        for choice in script:
            self.act(choice)
            self.check()
        while self.sweep(random) or self.sweep(random, FLUSH_AGE_NS):
            self.check()
        self.check_drained()

    # --- what must hold ------------------------------------------------------------------------------------

    def check(self) -> None:
        """At every moment: what a receiver holds is within the window, and no sender went beyond it."""
        for key, outgoing, incoming in self.channels():
            queued = sum(len(entry.rows) for entry in incoming._queue if entry.channel is incoming and entry.rows)
            assert outgoing._credit_rows >= 0, key
            assert queued + incoming._rows <= self.limits.window_rows - outgoing._credit_rows, key

    def check_drained(self) -> None:
        """At the end: nothing is left anywhere, and the credit is where it was."""
        stuck = [running.executor.name for _, running in self._running if not running.drained]
        assert not stuck
        assert not any(self._pipes.values())
        for key, outgoing, incoming in self.channels():
            assert not outgoing.pending, key
            assert not incoming._queue, key
            assert outgoing._credit_rows + incoming._rows == self.limits.window_rows, key
            assert outgoing._credit_bytes + incoming._bytes == self.limits.window_bytes, key

"""A run on one node, from its first start to its end: inputs checked, workers there as wanted, sensors running.

What is wanted is told by `Start` and `Grow`, at any moment, while workers may die at any moment too. So nothing is done
step by step from command to command: one task compares the workers that are wanted with those that are there, and does
what is missing, until nothing is (`_tend`). Whatever happens meanwhile makes it compare again.
"""

import asyncio
import ipaddress
import logging
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from msgspec import structs

from agents.agent.input_files import InputFiles
from agents.agent.profiling import Profiling
from agents.agent.spawner import Spawner
from agents.agent.worker_process import WorkerProcess
from agents.power.host import MeteredHost
from agents.protocol import (
    Failed,
    Grow,
    Mark,
    Message,
    Profile,
    Profiled,
    Progress,
    RunSpec,
    Start,
    Vitals,
    Welcome,
    WorkerReport,
)
from agents.protocol.node_folders import NodeFolder, RunFolder
from agents.sensors.base import Host, Row
from agents.sensors.interference import InterferenceMonitor
from agents.sensors.sampler import Sampler
from agents.trace import AGENT, TraceWriter
from inventory.errors import RunError

_SAMPLER_S, _KILLED_SAMPLER_S = 3.0, 0.5
"""How long the last sample may take before the agent goes on without it; the same when nobody will read it."""

_VITALS_S = 1.0
"""From one `Vitals` to the next."""

_FRESH_S = 3.0
"""Rates that are older are not told any more."""

_log = logging.getLogger(__name__)


class NodeRun:
    """Started once and again, ended once; a node without workers of the run has its sensors running."""

    def __init__(
        self,
        welcome: Welcome,
        spec: RunSpec,
        send: Callable[[Message], None],
        spawner: Spawner,
        do: Callable[[Coroutine[None, None, None]], asyncio.Task[None]],
        previous: "NodeRun | None" = None,
    ) -> None:
        """Do nothing until `start`.

        Args:
            welcome: who this node is.
            spec: of the first start.
            send: takes reports; called from the event loop's thread only.
            spawner: makes workers.
            do: makes a task, and takes care of what it raises.
            previous: a run that ends before this one has workers.
        """
        self._welcome, self._send, self._spawner, self._do, self._previous = welcome, send, spawner, do, previous
        self._node_folder = NodeFolder(Path(welcome.folder))
        self._inputs = InputFiles(self._node_folder)
        self._spec = spec
        self._wanted: dict[int, Start | Grow] = {}
        self._children: dict[int, WorkerProcess] = {}
        self._leaving: dict[int, WorkerProcess] = {}
        self._sampler: Sampler | None = None
        self._watch: InterferenceMonitor | None = None
        self._profiling: Profiling | None = None
        self._tending: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._vitals: tuple[float, Vitals] | None = None
        self._changed = self._killed = False

    @property
    def epoch(self) -> int:
        """Of the last start."""
        return self._spec.epoch

    def goes_on_with(self, spec: RunSpec) -> bool:
        """Whether this is the run of `spec`, and has not been told to end."""
        return self._ending is None and self._spec.run == spec.run

    def start(self, start: Start) -> None:
        """Begin a new epoch: live workers are kept when they are wanted, others end, missing ones are spawned.

        What goes wrong is reported as `Failed`, here and later.
        """
        self._spec = start.spec
        self._wanted = {}
        if self._beating is None:
            self._beating = self._do(self._beat())
        try:
            if self._sampler is None:
                self._folder.make()
                self._sampler = self._start_sampler(start.sensors)
        except (RunError, OSError) as fault:
            self._failed(f"the run cannot be started on {self._welcome.node}: {fault}")
        else:
            self._wanted = dict.fromkeys(self._slots(start.spec), start)
        self._tend_soon()

    def grow(self, grow: Grow) -> None:
        """Spawn the workers that are new in this epoch."""
        self._spec = grow.spec
        for slot in self._slots(grow.spec):
            self._wanted.setdefault(slot, grow)
        self._tend_soon()

    def pass_on(self, message: Message) -> None:
        """Give a command of this epoch to every worker."""
        for child in self._children.values():
            if child.epoch == self.epoch:
                child.tell(message)

    @property
    def processes(self) -> list[int]:
        """Ids of the workers that live."""
        return [child.pid for child in list(self._children.values()) if child.alive]

    def cpus_are_set(self) -> AbstractContextManager[None]:
        """While the block lasts, settings of CPUs change because this run wants it."""
        return nullcontext() if self._watch is None else self._watch.set_by_us()

    def mark(self, message: Mark) -> None:
        """Write the event, take a sample, tell the workers."""
        if self._watch is not None:
            self._watch.mark(message.kind)
        if self._sampler is not None:
            self._sampler.mark(message.kind)
        self.pass_on(message)

    async def sample_stacks(self, on: bool) -> None:
        """Sample the stacks of all workers from now on, or end that and say what there is."""
        if on and self._profiling is None:
            self._profiling = Profiling(self._folder.profiles, self._node_folder.path, self._welcome.node)
            for child in self._children.values():
                self._profiling.watch(child.slot, child.pid)
        elif not on:
            self._send(Profiled(epoch=self.epoch, profiles=await self._end_profiling()))

    async def end(self, wait_s: float = 0.0) -> None:
        """End workers and sensors, close the trace files; may be asked for several times and at any moment.

        Args:
            wait_s: how long rows about the last mark may be waited for; the first call counts.
        """
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end(wait_s))
            if self._beating is not None:
                self._beating.cancel()
        await asyncio.shield(self._ending)

    def kill(self) -> None:
        """Let `end`, asked for before or after this, wait for nothing that only a controller would want."""
        self._killed = True
        if self._previous is not None:
            self._previous.kill()
        for child in (*self._children.values(), *self._leaving.values()):
            child.kill()
        if self._sampler is not None:
            self._sampler.give_up()

    def _tend_soon(self) -> None:
        self._changed = True
        if self._ending is None and (self._tending is None or self._tending.done()):
            self._tending = self._do(self._tend())

    async def _tend(self) -> None:
        if self._previous is not None:
            await self._previous.end()
            self._previous = None
        while self._goes_on(changed=True):
            self._changed = False
            try:
                await self._settle()
            except (RunError, OSError) as fault:
                if self._goes_on(changed=False):
                    self._failed(f"the run cannot be started on {self._welcome.node}: {fault}")

    def _goes_on(self, *, changed: bool) -> bool:
        return self._ending is None and self._changed is changed

    async def _settle(self) -> None:
        """Make the workers what they should be; stop half-way when that changes."""
        if self._wanted:
            await asyncio.to_thread(self._inputs.check, self._spec.inputs, lambda: self._goes_on(changed=False))
        if not self._goes_on(changed=False):
            return
        for slot, child in list(self._children.items()):
            if slot not in self._wanted or (child.failed_in is not None and child.failed_in < self.epoch):
                del self._children[slot]
                self._leaving[slot] = child
                self._do(child.end())
            elif child.epoch < self.epoch:
                child.begin(self._wanted[slot])
        for slot in sorted(self._wanted.keys() - self._children.keys()):
            if self._goes_on(changed=False):
                await self._spawn(slot)

    async def _spawn(self, slot: int) -> None:
        if slot in self._leaving:
            await self._leaving[slot].end()
            del self._leaving[slot]
        child = await WorkerProcess.spawn(slot, self._folder, self._spawner, self._report, self._child_failed)
        self._children[slot] = child
        self._event("worker_started", f"worker {slot}", "", float(child.pid))
        if self._profiling is not None:
            self._profiling.watch(slot, child.pid)
        child.tell(structs.replace(self._welcome, slot=slot))
        if self._goes_on(changed=False):
            child.begin(self._wanted[slot])

    def _start_sampler(self, sensors: tuple[str, ...]) -> Sampler:
        welcome = self._welcome
        shared = welcome.shared or ipaddress.ip_address(welcome.address).is_loopback
        host = Host(
            node=welcome.node,
            address=welcome.address,
            shared=shared,
            agent=os.getpid(),
            workers=lambda: {child.slot: child.pid for child in list(self._children.values()) if child.alive},
            power=None if shared else welcome.power,
            meter_lag=welcome.meter_lag,
        )
        loop = asyncio.get_running_loop()
        watch = self._watch = InterferenceMonitor(
            MeteredHost.here(), host.shared, lambda: [host.agent, *host.workers().values()]
        )
        writer = TraceWriter(self._folder.traces, self._spec.run, welcome.node, AGENT)

        def on_fault(reason: str) -> None:
            loop.call_soon_threadsafe(self._failed, reason)

        def on_rows(rows: Sequence[Row]) -> None:
            for event in watch.look():
                sampler.event(*event)
            vitals = vitals_of(self.epoch, rows)
            if vitals is not None:
                loop.call_soon_threadsafe(self._note_vitals, vitals)

        sampler = Sampler(sensors, host, writer, on_fault, on_rows)
        sampler.start()
        return sampler

    def _note_vitals(self, vitals: Vitals) -> None:
        self._vitals = time.monotonic(), vitals

    async def _beat(self) -> None:
        """Report every second, whatever workers and sensors do: a node that reports nothing is given up."""
        while True:
            noted_s, vitals = self._vitals or (0.0, Vitals(epoch=self.epoch))
            fresh = time.monotonic() - noted_s < _FRESH_S
            self._send(structs.replace(vitals, epoch=self.epoch) if fresh else Vitals(epoch=self.epoch))
            await asyncio.sleep(_VITALS_S)

    async def _end_profiling(self) -> tuple[Profile, ...]:
        profiling, self._profiling = self._profiling, None
        return () if profiling is None else await profiling.end()

    async def _end(self, wait_s: float) -> None:
        if self._tending is not None:
            await asyncio.wait([self._tending])
        await self._end_profiling()
        # The last sample is taken while the workers still live, so that their CPU time is in it.
        ends = [child.end() for child in (*self._children.values(), *self._leaving.values())]
        *_, sampled = await asyncio.gather(*ends, self._stop_sampler(wait_s))
        if sampled and self._watch is not None:
            self._watch.close()
        if not sampled:
            self._failed(f"a sensor does not return: the last samples of {self._welcome.node} are missing")

    async def _stop_sampler(self, wait_s: float) -> bool:
        patience_s = _KILLED_SAMPLER_S if self._killed else _SAMPLER_S
        return self._sampler is None or await asyncio.to_thread(self._sampler.stop, patience_s, wait_s)

    def _report(self, child: WorkerProcess, report: WorkerReport) -> None:
        # How far a source has come counts in every later epoch.
        if isinstance(report, Progress) or (report.epoch == self.epoch and self._children.get(child.slot) is child):
            self._send(report)

    def _child_failed(self, child: WorkerProcess, failed: Failed) -> None:
        if self._children.get(child.slot) is not child:
            _log.info("worker %s, which is not wanted any more: %s", child.slot, failed.reason)
            return
        self._event("worker_failed", f"worker {failed.slot}", failed.reason)
        if failed.epoch == self.epoch:
            self._send(failed)
        else:
            # It did not come as far as this epoch: another one takes its place.
            self._tend_soon()

    def _event(self, kind: str, subject: str, detail: str, value: float | None = None) -> None:
        if self._sampler is not None:
            self._sampler.event(kind, subject, detail, value)

    def _failed(self, reason: str) -> None:
        _log.error("epoch %s: %s", self.epoch, reason)
        self._send(Failed(epoch=self.epoch, slot=AGENT, reason=reason, log=str(self._node_folder.log)))

    def _slots(self, spec: RunSpec) -> list[int]:
        return sorted(place.slot for place in spec.workers if place.node == self._welcome.node)

    @property
    def _folder(self) -> RunFolder:
        return self._node_folder.run(self._spec.run)


def vitals_of(epoch: int, rows: Iterable[Row]) -> Vitals | None:
    """What one sample says of the CPU time of the node and its workers; None when it says nothing of it."""
    cores: dict[tuple[str, str], float] = {}
    for row in rows:
        if row.table == "cpu":
            scope, name, used, *_ = row.values
            cores[scope, name] = used
    of_node = [used for (scope, _), used in cores.items() if scope == "node"]
    of_workers = {int(name): used for (scope, name), used in cores.items() if scope == "worker" and name.isdigit()}
    return Vitals(epoch=epoch, cores=of_node[0] if of_node else None, workers=of_workers) if cores else None

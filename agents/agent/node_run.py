"""A run on one node, from its first start to its end: checked inputs, workers as requested, sensors.

`Start` and `Grow` request workers at any time, and workers may die at any time. So one task reconciles the running
workers with the requested ones (`_reconcile`), and every change makes it compare them again.
"""

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from msgspec import structs

from agents.agent.run_sensors import RunSensors
from agents.agent.spawner import Spawner
from agents.agent.worker_process import WorkerProcess
from agents.agent.worker_reports import NodeVitals, Profiling, vitals_of
from agents.power.reader import MeteredHost
from agents.protocol import (
    Failed,
    Grow,
    InputFile,
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
from agents.sensors import Row
from agents.trace import AGENT
from inventory.errors import RunError

_PIECE = 1024 * 1024

_Version = tuple[int, int, int, int]
"""Attributes that change when a file is written or replaced: inode, size, times of modification and change."""

_VITALS_S = 1.0
"""Interval of `Vitals`."""

_FRESH_S = 3.0
"""Older rates are no longer reported."""

_log = logging.getLogger(__name__)


class InputFiles:
    """The inputs of a run on this node; a copy is read once, and again only after the file has changed."""

    def __init__(self, folder: NodeFolder) -> None:
        self._folder = folder
        self._hashes: dict[Path, tuple[_Version, str]] = {}

    def check(self, inputs: Iterable[InputFile], may_continue: Callable[[], bool]) -> None:
        """Compare copies with their checksums; return early, without a result, once `may_continue()` is false.

        Raises:
            RunError: a copy is missing, cannot be read or differs.
        """
        for entry in inputs:
            path = self._folder.input(entry.file)
            try:
                sha256 = self._sha256(path, may_continue)
            except FileNotFoundError:
                raise RunError(f"the input {entry.name!r} is missing: {path}") from None
            except OSError as fault:
                raise RunError(f"the input {entry.name!r} cannot be read: {path}: {fault.strerror}") from None
            if sha256 is None:
                return
            if sha256 != entry.sha256:
                raise RunError(
                    f"the input {entry.name!r} differs from the controller's: {path} has SHA-256 {sha256}, "
                    f"expected {entry.sha256}"
                )

    def _sha256(self, path: Path, may_continue: Callable[[], bool]) -> str | None:
        state = path.stat()
        version = (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
        known, sha256 = self._hashes.get(path, (None, ""))
        if known == version:
            return sha256
        digest = hashlib.sha256()
        with path.open("rb") as source:
            while piece := source.read(_PIECE):
                if not may_continue():
                    return None
                digest.update(piece)
        self._hashes[path] = (version, digest.hexdigest())
        return digest.hexdigest()


class NodeRun:
    """A run on one node: started once per epoch, ended once; sensors also run on a node without workers."""

    def __init__(
        self,
        welcome: Welcome,
        spec: RunSpec,
        send: Callable[[Message], None],
        spawner: Spawner,
        start_task: Callable[[Coroutine[None, None, None]], asyncio.Task[None]],
        previous: "NodeRun | None" = None,
    ) -> None:
        """Create a run, which does nothing until `start`.

        Args:
            welcome: id, address and folder of this node.
            spec: of the first start.
            send: sends reports; called from the event loop's thread only.
            spawner: spawns workers.
            start_task: creates a task and handles its exceptions.
            previous: a run that is ended before this one spawns workers.
        """
        self._welcome, self._send, self._spawner, self._start_task, self._previous = (
            welcome,
            send,
            spawner,
            start_task,
            previous,
        )
        self._node_folder = NodeFolder(Path(welcome.folder))
        self._inputs = InputFiles(self._node_folder)
        self._spec = spec
        self._wanted: dict[int, Start | Grow] = {}
        self._workers: dict[int, WorkerProcess] = {}
        self._leaving: dict[int, WorkerProcess] = {}
        self._sensors: RunSensors | None = None
        self._profiling: Profiling | None = None
        self._reconciling: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._sending_vitals: asyncio.Task[None] | None = None
        self._vitals: tuple[float, Vitals] | None = None
        self._changed = self._fresh = False

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self._spec.epoch

    def continues(self, spec: RunSpec) -> bool:
        """Return whether this is the run of `spec` and is not being ended."""
        return self._ending is None and self._spec.run == spec.run

    def start(self, start: Start) -> None:
        """Start a new epoch: keep requested live workers, end others, and spawn missing ones.

        Errors are reported as `Failed`, here and later.
        """
        self._spec, self._fresh = start.spec, start.fresh
        self._wanted = {}
        if self._sending_vitals is None:
            self._sending_vitals = self._start_task(self._send_vitals())
        try:
            if self._sensors is None:
                self._folder.make()
                self._sensors = self._start_sensors(start.sensors)
        except (RunError, OSError) as fault:
            self._failed(f"the run cannot be started on {self._welcome.node}: {fault}")
        else:
            self._wanted = dict.fromkeys(self._slots(start.spec), start)
        self._reconcile_soon()

    def grow(self, grow: Grow) -> None:
        """Spawn the workers that `grow` adds to this epoch."""
        self._spec = grow.spec
        for slot in self._slots(grow.spec):
            self._wanted.setdefault(slot, grow)
        self._reconcile_soon()

    def pass_on(self, message: Message) -> None:
        """Forward a command of this epoch to all workers."""
        for worker in self._workers.values():
            if worker.epoch == self.epoch:
                worker.send(message)

    @property
    def processes(self) -> list[int]:
        """Process ids of the live workers."""
        return [worker.pid for worker in list(self._workers.values()) if worker.alive]

    def cpus_are_set(self) -> AbstractContextManager[None]:
        """Return a context in which changes of CPU settings do not count as interference."""
        return nullcontext() if self._sensors is None else self._sensors.cpus_are_set()

    def mark(self, message: Mark) -> None:
        """Write the event, take a sample, and forward the mark to the workers."""
        if self._sensors is not None:
            self._sensors.mark(message.kind)
        self.pass_on(message)

    async def sample_stacks(self, on: bool) -> None:
        """Start sampling the stacks of all workers, or end it and report the profiles."""
        if on and self._profiling is None:
            self._profiling = Profiling(self._folder.profiles, self._node_folder.path, self._welcome.node)
            for worker in self._workers.values():
                self._profiling.watch(worker.slot, worker.pid)
        elif not on:
            self._send(Profiled(epoch=self.epoch, profiles=await self._end_profiling()))

    async def end(self, wait_s: float = 0.0) -> None:
        """End workers and sensors, and close the trace files; may be called several times and at any time.

        Args:
            wait_s: how long to wait for rows about the last mark; the first call counts.
        """
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end(wait_s))
            if self._sending_vitals is not None:
                self._sending_vitals.cancel()
        await asyncio.shield(self._ending)

    def kill(self) -> None:
        """Kill all workers, so that a call of `end`, before or after this one, does not wait for their results."""
        if self._previous is not None:
            self._previous.kill()
        for worker in (*self._workers.values(), *self._leaving.values()):
            worker.kill()
        if self._sensors is not None:
            self._sensors.give_up()

    def kill_worker(self, slot: int) -> None:
        """Kill the worker of a slot, if it has one, as a crash would end it."""
        if slot in self._workers:
            self._workers[slot].crash()

    def _reconcile_soon(self) -> None:
        self._changed = True
        if self._ending is None and (self._reconciling is None or self._reconciling.done()):
            self._reconciling = self._start_task(self._reconcile())

    async def _reconcile(self) -> None:
        if self._previous is not None:
            await self._previous.end()
            self._previous = None
        while self._still(changed=True):
            self._changed = False
            try:
                await self._update_workers()
            except (RunError, OSError) as fault:
                if self._still(changed=False):
                    self._failed(f"the run cannot be started on {self._welcome.node}: {fault}")

    def _still(self, *, changed: bool) -> bool:
        return self._ending is None and self._changed is changed

    async def _update_workers(self) -> None:
        """End, start and spawn workers as requested; return early when the request changes."""
        if self._wanted:
            await asyncio.to_thread(self._inputs.check, self._spec.inputs, lambda: self._still(changed=False))
        if not self._still(changed=False):
            return
        for slot, worker in list(self._workers.items()):
            failed = worker.failed_in is not None and worker.failed_in < self.epoch
            if slot not in self._wanted or failed or (self._fresh and worker.epoch < self.epoch):
                del self._workers[slot]
                self._leaving[slot] = worker
                self._start_task(worker.end())
            elif worker.epoch < self.epoch:
                worker.start_epoch(self._wanted[slot])
        for slot in sorted(self._wanted.keys() - self._workers.keys()):
            if self._still(changed=False):
                await self._spawn(slot)

    async def _spawn(self, slot: int) -> None:
        if slot in self._leaving:
            await self._leaving[slot].end()
            del self._leaving[slot]
        worker = await WorkerProcess.spawn(
            slot, self._folder, self._spawner, self._spec.columns, self._report, self._worker_failed
        )
        self._workers[slot] = worker
        self._event("worker_started", f"worker {slot}", "", float(worker.pid))
        if self._profiling is not None:
            self._profiling.watch(slot, worker.pid)
        worker.send(structs.replace(self._welcome, slot=slot))
        if self._still(changed=False):
            worker.start_epoch(self._wanted[slot])

    def _start_sensors(self, names: tuple[str, ...]) -> RunSensors:
        loop = asyncio.get_running_loop()
        convert = NodeVitals(MeteredHost.here()).vitals_of if self._spec.observed else vitals_of

        def workers() -> Mapping[int, int]:
            return {worker.slot: worker.pid for worker in list(self._workers.values()) if worker.alive}

        def on_fault(reason: str) -> None:
            loop.call_soon_threadsafe(self._failed, reason)

        def on_rows(rows: Sequence[Row]) -> None:
            vitals = convert(self.epoch, rows)
            if vitals is not None:
                loop.call_soon_threadsafe(self._note_vitals, vitals)

        return RunSensors(
            names,
            self._welcome,
            self._spec.run,
            self._folder.traces,
            os.getpid(),
            workers,
            lambda: workers().values(),
            on_fault,
            on_rows,
        )

    def _note_vitals(self, vitals: Vitals) -> None:
        self._vitals = time.monotonic(), vitals

    async def _send_vitals(self) -> None:
        """Report every second, even if workers and sensors do not, because a silent node counts as lost."""
        while True:
            noted_s, vitals = self._vitals or (0.0, Vitals(epoch=self.epoch))
            fresh = time.monotonic() - noted_s < _FRESH_S
            self._send(structs.replace(vitals, epoch=self.epoch) if fresh else Vitals(epoch=self.epoch))
            await asyncio.sleep(_VITALS_S)

    async def _end_profiling(self) -> tuple[Profile, ...]:
        profiling, self._profiling = self._profiling, None
        return () if profiling is None else await profiling.end()

    async def _end(self, wait_s: float) -> None:
        if self._reconciling is not None:
            await asyncio.wait([self._reconciling])
        await self._end_profiling()
        # The last sample is taken while the workers are still alive, so that it includes their CPU time.
        ends = [worker.end() for worker in (*self._workers.values(), *self._leaving.values())]
        *_, sampled = await asyncio.gather(*ends, self._stop_sensors(wait_s))
        if not sampled:
            self._failed(f"a sensor does not return: the last samples of {self._welcome.node} are missing")

    async def _stop_sensors(self, wait_s: float) -> bool:
        return self._sensors is None or await asyncio.to_thread(self._sensors.stop, wait_s)

    def _report(self, worker: WorkerProcess, report: WorkerReport) -> None:
        # The position of a source counts in every later epoch.
        if isinstance(report, Progress) or (report.epoch == self.epoch and self._workers.get(worker.slot) is worker):
            self._send(report)

    def _worker_failed(self, worker: WorkerProcess, failed: Failed) -> None:
        if self._workers.get(worker.slot) is not worker:
            _log.info("worker %s, which is no longer requested: %s", worker.slot, failed.reason)
            return
        self._event("worker_failed", f"worker {failed.slot}", failed.reason)
        if failed.epoch == self.epoch:
            self._send(failed)
        else:
            # It failed before it reached this epoch, so another one replaces it.
            self._reconcile_soon()

    def _event(self, kind: str, subject: str, detail: str, value: float | None = None) -> None:
        if self._sensors is not None:
            self._sensors.event(kind, subject, detail, value)

    def _failed(self, reason: str) -> None:
        _log.error("epoch %s: %s", self.epoch, reason)
        self._send(Failed(epoch=self.epoch, slot=AGENT, reason=reason, log=str(self._node_folder.log)))

    def _slots(self, spec: RunSpec) -> list[int]:
        return sorted(place.index for place in spec.workers if place.node == self._welcome.node)

    @property
    def _folder(self) -> RunFolder:
        return self._node_folder.run(self._spec.run)

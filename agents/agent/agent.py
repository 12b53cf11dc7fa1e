"""The node agent: its commands, its reports, and its end.

    Hello ->                            at once, with facts
    <- Welcome                          node id; the data address and the folder are checked
    <- MeterIdle, -> Idled              power of the node without workers, before or after a run
    <- SetCpus, RestoreCpus, -> CpusSet  the node's CPUs are set for a run, and restored after it
    <- Start                            a run starts after any previous one has ended; or a new epoch of the same run,
                                        which keeps live workers
    <- Grow                             the run gets more workers
    <- Connect, Go, Precopy, Prepare,   forwarded to the run's workers, whose reports are forwarded back
       Cut, Abandon, TimeSlot, Schedule, Clock,
       Mark, Stop
    <- Kill                             a worker, or the agent itself, is killed at once
    <- Sampling, -> Profiled            sampling of the workers' stacks starts or ends
    <- Equip, -> Equipped               a run of programs begins, instead of one of workers; it is this agent's only run
    <- Launch, -> Launched, Lines       its programs are started, and lines of their reports are passed on
    <- Write, -> Written                a file is written for its programs
    <- Finish, -> Finished              the run ends; the next `Start` has a higher epoch
    <- Reuse, -> Reused                 another run follows, in another folder and with epochs from 1
    <- Bye                              the agent exits with status 0
    <- Heartbeat, -> Pulse              at any time

It also exits, with status 1 and after the same cleanup, when its input ends, when no heartbeat arrives for
`protocol.SILENCE_S`, on invalid input or another version of the protocol, and on SIGTERM, SIGHUP and SIGINT.
"""

import asyncio
import logging
import os
import platform
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from msgspec import structs

from agents import protocol
from agents.agent.cleanliness import Cleanliness
from agents.agent.node_run import NodeRun
from agents.agent.program_run import ProgramRun
from agents.agent.spawner import Spawner
from agents.cpu.control import describe_unrestored, put_back
from agents.cpu.node_cpus import CpuAffinity, NodeCpus
from agents.host.facts import gather
from agents.host_files import HostFiles
from agents.power.reader import MeteredHost
from agents.protocol import (
    VERSION,
    Abandon,
    Bye,
    Clock,
    Connect,
    Cut,
    Equip,
    Failed,
    Finish,
    Finished,
    Go,
    Grow,
    Heartbeat,
    Hello,
    IdleBaseline,
    Idled,
    Kill,
    Launch,
    Mark,
    Message,
    MeterIdle,
    Precopy,
    Prepare,
    Pulse,
    RestoreCpus,
    Reuse,
    Reused,
    Sampling,
    Schedule,
    SetCpus,
    Start,
    Stop,
    TimeSlot,
    Welcome,
    Write,
)
from agents.protocol.lines import LineSplitter, Output
from agents.protocol.node_folders import NodeFolder, plain_name
from agents.sensors.sampler import LONGEST_WAIT_S
from agents.trace import AGENT
from inventory.errors import MillraceError, RunError, UnfitError
from inventory.foreign import printable, printable_lines
from inventory.parent_death import live_on

_GRACE_S = 0.2
"""After a silence, the pipe is read once more, in case this process was suspended and not the controller."""

_Forwarded = Connect | Go | Precopy | Prepare | Cut | Abandon | TimeSlot | Schedule | Clock | Stop
_RunCommand = _Forwarded | Grow | Mark | Kill | Sampling | Launch | Write | Finish

_log = logging.getLogger(__name__)


class Agent(asyncio.Protocol):
    """The agent: handles the commands on its control channel."""

    _cleanliness: Cleanliness

    def __init__(self, send: Callable[[Message], None], silence_s: float, spawner: Spawner) -> None:
        """Wait for a controller.

        Args:
            send: sends reports to the controller.
            silence_s: how long to run without a heartbeat.
            spawner: spawns workers.
        """
        self._send, self._silence_s, self._spawner = send, silence_s, spawner
        self._loop = asyncio.get_running_loop()
        self._lines = LineSplitter()
        self._welcome: Welcome | None = None
        self._run: NodeRun | ProgramRun | None = None
        self._cpus: NodeCpus | None = None
        self._affinity = CpuAffinity()
        self._epoch = 0
        self._last_heartbeat_s = time.monotonic()
        self._tasks: set[asyncio.Task[None]] = set()
        self._over: asyncio.Future[int] = self._loop.create_future()

    async def run(self) -> int:
        """Run until the agent is to end, clean up, and return the exit status."""
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            self._loop.add_signal_handler(number, self.stop, f"got {number.name}")
        # The end of the input is noticed from here on. The parent-death signal follows the parent's thread, which may
        # end before its process.
        live_on()
        watch = self._loop.create_task(self._watch_silence())
        self._send(Hello(version=VERSION, pid=os.getpid(), python=platform.python_version(), facts=gather()))
        status = 1
        try:
            status = await self._over
            return status
        finally:
            watch.cancel()
            if status and self._run is not None:
                self._run.kill()
            # First, so that nothing waits for a worker that is no longer needed.
            await self._spawner.close()
            if self._run is not None:
                await self._run.end()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self._cpus is not None:
                # Last, because workers may run until here.
                await asyncio.to_thread(self._cpus.restore)

    def stop(self, reason: str, status: int = 1) -> None:
        """End the agent; the first reason counts."""
        if not self._over.done():
            _log.info("the agent ends: %s", reason)
            self._over.set_result(status)

    def data_received(self, data: bytes) -> None:
        """Handle received commands; invalid input ends the agent."""
        try:
            for line in self._lines.feed(data):
                if not self._over.done():
                    self._handle(protocol.decode_command(line))
        except RunError as fault:
            self._fail(str(fault))
            self.stop(str(fault))

    def connection_lost(self, exc: Exception | None) -> None:
        """End the agent, because the controller is gone."""
        self.stop("standard input has ended")

    def _handle(self, command: protocol.Command) -> None:
        received_ns = time.monotonic_ns()
        match command:
            case Heartbeat(sent_ns=sent_ns):
                self._last_heartbeat_s = time.monotonic()
                self._send(Pulse(sent_ns=sent_ns, received_ns=received_ns, answered_ns=time.monotonic_ns()))
            case Bye():
                self.stop("the controller has sent Bye", 0)
            case Welcome():
                self._accept_welcome(command)
            case _ if self._welcome is None:
                raise RunError(f"{type(command).__name__} before Welcome")
            case Start():
                self._start_run(self._welcome, command)
            case Equip():
                self._equip(self._welcome, command)
            case MeterIdle():
                self._spawn_task(self._meter_idle(self._welcome, command))
            case SetCpus():
                self._spawn_task(self._set_cpus(self._cpus_of(self._welcome), command))
            case RestoreCpus():
                self._spawn_task(self._restore_cpus(self._cpus_of(self._welcome)))
            case Reuse():
                self._spawn_task(self._reuse(self._welcome, command))
            case _:
                self._handle_for_run(command)

    def _accept_welcome(self, welcome: Welcome) -> None:
        """Take the node's id, and check the preconditions of every run.

        Raises:
            RunError: this node cannot be used.
        """
        if welcome.version != VERSION:
            raise protocol.other_version(welcome.version)
        if self._welcome is not None:
            raise RunError("a second Welcome")
        plain_name("node id", welcome.node)
        _check_address(welcome.address)
        self._use_folder(welcome)
        self._cleanliness = Cleanliness()
        self._spawn_task(self._spawner.warm())
        _log.info("agent of %s, process %s, campaign %s", welcome.node, os.getpid(), welcome.campaign or "not named")

    def _use_folder(self, welcome: Welcome) -> None:
        """Log to the folder of a welcome, which holds from now on.

        Raises:
            RunError: the folder cannot be used.
        """
        try:
            log_to(NodeFolder(Path(welcome.folder)).log)
        except OSError as fault:
            raise RunError(f"the folder {welcome.folder} cannot be used: {fault}") from None
        self._welcome = welcome

    async def _reuse(self, welcome: Welcome, reuse: Reuse) -> None:
        """End the last run, check that nothing remains of it, and forget it."""
        if isinstance(self._run, ProgramRun):
            raise RunError("Reuse after a run of programs")
        if self._run is not None:
            await self._run.end()
        # First, because the guardian of CPU settings is a process with descriptors here.
        restored = await asyncio.to_thread(self._cpus_of(welcome).restore)
        leftovers = [f"{each.setting} is {each.got}, was {each.asked}" for each in restored.settings if not each.ok]
        leftovers += restored.refused
        folder, server = Path(welcome.folder), self._spawner.process
        leftovers += await asyncio.to_thread(self._cleanliness.leftovers, folder, server)
        self._run, self._epoch = None, 0
        self._use_folder(structs.replace(welcome, folder=reuse.folder))
        # The last folder is gone, and with it the working directory.
        os.chdir(reuse.folder)
        _log.info("agent of %s, process %s, used again: %s", welcome.node, os.getpid(), "; ".join(leftovers) or "clean")
        self._send(Reused(facts=gather(), leftovers=tuple(leftovers)))

    def _start_run(self, welcome: Welcome, start: Start) -> None:
        epoch = start.spec.epoch
        if epoch <= self._epoch:
            _log.info("a Start of epoch %s is ignored, this is %s", epoch, self._epoch)
            return
        self._epoch = epoch
        run = self._run
        if isinstance(run, ProgramRun):
            raise RunError("Start after a run of programs")
        if run is None or not run.continues(start.spec):
            run = self._run = NodeRun(welcome, start.spec, self._send, self._spawner, self._spawn_task, run)
        run.start(start)

    def _equip(self, welcome: Welcome, equip: Equip) -> None:
        if self._run is not None:
            raise RunError("Equip after another run")
        self._epoch = equip.epoch
        self._run = ProgramRun(welcome, equip, self._send, self._spawn_task)

    def _handle_for_run(self, command: _RunCommand) -> None:
        run = self._run
        if isinstance(command, Kill) and command.slot == protocol.AGENT:
            os.kill(os.getpid(), signal.SIGKILL)  # in any epoch
        elif run is None or command.epoch != run.epoch:
            # A restarted agent may not have joined the epoch yet, and then has no worker to be killed.
            if command.epoch > self._epoch and not isinstance(command, Kill):
                raise RunError(f"{type(command).__name__} of epoch {command.epoch}, which was never started here")
            _log.info("%s of epoch %s is ignored, this is %s", type(command).__name__, command.epoch, self._epoch)
        elif isinstance(command, Finish):
            self._spawn_task(self._finish(run, command.epoch))
        elif isinstance(run, ProgramRun):
            self._handle_for_programs(run, command)
        elif isinstance(command, Launch | Write):
            raise RunError(f"{type(command).__name__} for a run of workers")
        elif isinstance(command, Grow):
            run.grow(command)
        elif isinstance(command, Mark):
            run.mark(command)
        elif isinstance(command, Kill):
            run.kill_worker(command.slot)
        elif isinstance(command, Sampling):
            self._spawn_task(run.sample_stacks(command.on))
        else:
            run.pass_on(command)

    def _handle_for_programs(self, run: ProgramRun, command: _RunCommand) -> None:
        match command:
            case Launch():
                run.launch(command)
            case Write():
                run.write(command)
            case Mark():
                run.mark(command)
            case _:
                raise RunError(f"{type(command).__name__} for a run of programs")

    async def _meter_idle(self, welcome: Welcome, command: MeterIdle) -> None:
        # Loading the meters takes time, and most runs do not need them here.
        from agents.agent.idle_baseline import StoppedError, measure_idle
        from agents.power.settings import completed_settings, meter_settings

        host = MeteredHost.here()
        try:
            settings = completed_settings(meter_settings(host), None, welcome.meter_lag)
            baseline = await asyncio.to_thread(
                measure_idle, host, settings, command.settle_s, command.measure_s, self._over.done
            )
        except StoppedError:
            return
        except (MillraceError, OSError) as fault:
            baseline = IdleBaseline(reason=str(fault))
        self._send(Idled(baseline=baseline))

    def _cpus_of(self, welcome: Welcome) -> NodeCpus:
        if self._cpus is None:
            owner = f"campaign {welcome.campaign or 'without a name'}, agent of {welcome.node}, process {os.getpid()}"
            self._cpus = NodeCpus(MeteredHost.here(), owner, self._affinity, self._processes)
        return self._cpus

    async def _set_cpus(self, cpus: NodeCpus, command: SetCpus) -> None:
        with self._run.cpus_are_set() if self._run else nullcontext():
            answer = await asyncio.to_thread(cpus.set, command)
        self._send(answer)

    async def _restore_cpus(self, cpus: NodeCpus) -> None:
        with self._run.cpus_are_set() if self._run else nullcontext():
            answer = await asyncio.to_thread(cpus.restore)
        self._send(answer)

    def _processes(self) -> list[int]:
        """Return the ids of the processes that get the run's CPU affinity; callable from any thread."""
        server = self._spawner.process
        workers = self._run.processes if self._run else []
        return [os.getpid(), *([server] if server else []), *workers]

    async def _finish(self, run: NodeRun | ProgramRun, epoch: int) -> None:
        await run.end(LONGEST_WAIT_S)
        self._send(Finished(epoch=epoch))

    async def _watch_silence(self) -> None:
        while True:
            left_s = self._last_heartbeat_s + self._silence_s - time.monotonic()
            if left_s > 0:
                await asyncio.sleep(left_s)
                continue
            await asyncio.sleep(_GRACE_S)
            if time.monotonic() - self._last_heartbeat_s > self._silence_s:
                self.stop(f"no heartbeat for {self._silence_s:g} s")
                return

    def _spawn_task(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            _log.error("internal error", exc_info=fault)
            self._fail(f"internal error: {type(fault).__name__}: {fault}")
            self.stop("internal error")

    def _fail(self, reason: str) -> None:
        _log.error("%s", reason)
        log = str(NodeFolder(Path(self._welcome.folder)).log) if self._welcome else ""
        self._send(Failed(epoch=self._epoch, slot=AGENT, reason=reason, log=log))


class Formatter(logging.Formatter):
    """Formatter that writes each message as one printable line; only tracebacks have more lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's own name
        return printable_lines(super().formatException(ei))


def _check_address(address: str) -> None:
    try:
        with socket.create_server((address, 0)):
            pass
    except OSError as fault:
        raise RunError(f"the data address {address} cannot be bound: {fault.strerror or fault}") from None


def _put_back_cpus(host: HostFiles) -> None:
    """Restore CPU settings that a dead campaign has left here; those of a live campaign remain."""
    try:
        answer = put_back(host, f"agent {os.getpid()}", patience_s=0)
    except UnfitError as fault:
        _log.warning("%s", fault)
    else:
        if answer.settings:
            _log.warning(
                "a dead campaign had left CPU settings behind: %s",
                "restored" if answer.ok else describe_unrestored(answer),
            )


def run_agent(silence_s: float, spawner: Spawner) -> int:
    """Run an agent on standard input and output; return the exit status.

    Args:
        silence_s: how long to run without a heartbeat.
        spawner: spawns workers.
    """
    source, target = keep_protocol()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter("%(asctime)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    _put_back_cpus(MeteredHost.here())
    return asyncio.run(_serve(source, target, silence_s, spawner))


def keep_protocol() -> tuple[int, int]:
    """Move the protocol's pipes away from file descriptors 0 and 1; return (input, output).

    Afterwards everything printed, by Python or by a C library, goes to standard error, and standard input is empty.
    Children do not inherit the returned descriptors.
    """
    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout.flush()
    os.dup2(2, 1)
    return source, target


def log_to(path: Path) -> None:
    """Append everything printed from now on (descriptors 1 and 2) to a file.

    Raises:
        OSError: the file cannot be opened.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)


async def _serve(source: int, target: int, silence_s: float, spawner: Spawner) -> int:
    output = Output(target)
    agent = Agent(output.send, silence_s, spawner)
    output.on_lost = lambda: agent.stop("standard output is closed")
    with os.fdopen(source, "rb", buffering=0) as pipe:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: agent, pipe)
        status = await agent.run()
        await output.flush()
        transport.close()
        return status

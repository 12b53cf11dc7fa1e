"""A run of programs on one node, such as those of another stream engine, from their start to their end.

Programs know nothing of the control protocol. They are started with commands, look for files that the controller has
written (`Write`), and their processes may report in files, which are passed on line by line. Everything that they have
started ends with the run, also what has left its session or its parent: orphans become children of the agent. If the
agent is killed, the kernel kills the programs, and the lease of the node what they have started
(`controller.ssh.node_lease_daemon`).
"""

import asyncio
import os
import random
import signal
import socket
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path

import psutil

from agents.agent.run_sensors import RunSensors
from agents.agent.worker_process import ending, process_state
from agents.protocol import (
    AGENT,
    REPORT_FILE,
    Equip,
    Equipped,
    Failed,
    Launch,
    Launched,
    Lines,
    Mark,
    Message,
    Program,
    Welcome,
    Write,
    Written,
)
from agents.protocol.node_folders import NodeFolder, RunFolder, below, copy_logs, kept_libraries
from inventory.atomic_files import complete_folder, replace_file
from inventory.errors import RunError
from inventory.libc import ADOPTS_ORPHANS, set_property
from inventory.parent_death import end_with

FIRST_PORT, LAST_PORT = 20_000, 32_000
"""Ports that a system does not give to connections by default."""

MOST_LINES = 512 * 1024
"""Bytes of a file of reports in one message."""

_POLL_S = 0.1
_CHECK_S = 1.0


class ProgramRun:
    """A run of programs on one node; commands come in the order `Equip`, `Launch`, and any number of others."""

    def __init__(
        self,
        welcome: Welcome,
        equip: Equip,
        send: Callable[[Message], None],
        start_task: Callable[[Coroutine[None, None, None]], asyncio.Task[None]],
    ) -> None:
        """Make the run's folders, find its ports and its libraries, and answer `Equipped`.

        Args:
            welcome: id, address and folder of this node.
            equip: the run.
            send: sends reports; called from the event loop's thread only.
            start_task: creates a task and handles its exceptions.

        Raises:
            RunError: a name is invalid, or the run needs libraries that this node cannot keep.
        """
        self.epoch = equip.epoch
        self._welcome, self._run, self._send, self._start_task = welcome, equip.run, send, start_task
        self._log = NodeFolder(Path(welcome.folder)).log
        self._folder: RunFolder = NodeFolder(Path(welcome.folder)).run(equip.run)
        self._libraries = kept_libraries(equip.libraries) if equip.libraries else None
        self._ports = ExitStack()
        # Those that other parts of the agent have started.
        self._others: frozenset[int] | None = None
        self._programs: dict[int, asyncio.subprocess.Process] = {}
        self._executors: dict[int, int] = {}
        self._read: dict[str, int] = {}
        self._sensors: RunSensors | None = None
        self._launching: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        try:
            self._folder.make()
            for name in equip.folders:
                below(self._folder.path, name).mkdir(parents=True, exist_ok=True)
            first = self._hold_ports(equip.ports) if equip.ports else 0
        except OSError as fault:
            self._failed(f"the run cannot be started on {welcome.node}: {fault}")
        else:
            has_libraries = self._libraries is not None and self._libraries.is_dir()
            self._send(Equipped(epoch=self.epoch, first_port=first, has_libraries=has_libraries))

    @property
    def processes(self) -> list[int]:
        """Process ids of the programs, and of all that they have started."""
        if self._others is None:
            return []
        own_session = os.getsid(0)
        pids = []
        for child in psutil.Process().children(recursive=True):
            # What sensors start stays in the agent's session, and what programs start has left it with them.
            with suppress(ProcessLookupError):
                if child.pid not in self._others and os.getsid(child.pid) != own_session:
                    pids.append(child.pid)
        return pids

    def cpus_are_set(self) -> AbstractContextManager[None]:
        """Return a context in which changes of CPU settings do not count as interference."""
        return nullcontext() if self._sensors is None else self._sensors.cpus_are_set()

    def launch(self, command: Launch) -> None:
        """Start programs and sensors, and answer `Launched`, or `Failed`.

        Raises:
            RunError: they have been started before.
        """
        if self._launching is not None:
            raise RunError("a second Launch")
        self._others = frozenset(child.pid for child in psutil.Process().children(recursive=True))
        set_property(ADOPTS_ORPHANS, True)
        self._launching = self._start_task(self._launch(command))

    def mark(self, message: Mark) -> None:
        """Write the event, and take a sample."""
        if self._sensors is not None:
            self._sensors.mark(message.kind)

    def write(self, command: Write) -> None:
        """Write a file, and answer `Written`.

        Raises:
            RunError: it is not below the run's folder.
        """
        try:
            path = below(self._folder.path, command.file)
            replace_file(path, command.text.encode())
        except OSError as fault:
            self._failed(f"{command.file} cannot be written: {fault.strerror}")
        else:
            self._send(Written(epoch=self.epoch))

    async def end(self, wait_s: float = 0.0) -> None:
        """Take the last samples, end all processes and keep logs; may be called several times and at any time.

        Args:
            wait_s: how long to wait for rows about the last mark; the first call counts.
        """
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end(wait_s))
        await asyncio.shield(self._ending)

    def kill(self) -> None:
        """Kill all processes at once, because the controller is gone; `end` waits for them."""
        if self._sensors is not None:
            self._sensors.give_up()
        for pid in self.processes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def _launch(self, command: Launch) -> None:
        try:
            await asyncio.to_thread(self._link_libraries)
            reports = below(self._folder.path, command.reports) if command.reports else None
            self._ports.close()
            pids = {program.name: await self._start(program) for program in command.programs}
            if command.sensors:
                self._sensors = self._start_sensors(command.sensors, pids.get(command.daemon))
        except (RunError, OSError) as fault:
            self._failed(f"the run cannot be started on {self._welcome.node}: {fault}")
            return
        self._send(Launched(epoch=self.epoch, pids=pids))
        if reports is not None:
            self._start_task(self._pass_on_reports(reports))

    async def _start(self, program: Program) -> int:
        log = Path(program.log)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *program.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder.path,
                env={**os.environ, **program.environment},
                start_new_session=True,
                preexec_fn=end_with(os.getpid(), number=signal.SIGKILL),
            )
        self._programs[process.pid] = process
        self._start_task(self._await_end(program, process))
        return process.pid

    async def _await_end(self, program: Program, process: asyncio.subprocess.Process) -> None:
        status = await process.wait()
        if self._ending is None:
            self._failed(f"{program.name} {ending(status)}", log=program.log, died=True)

    def _start_sensors(self, names: tuple[str, ...], daemon: int | None) -> RunSensors:
        loop = asyncio.get_running_loop()

        def on_fault(reason: str) -> None:
            loop.call_soon_threadsafe(self._failed, reason)

        return RunSensors(
            names,
            self._welcome,
            self._run,
            self._folder.traces,
            daemon,
            self._executors.copy,
            lambda: self.processes,
            on_fault,
        )

    def _link_libraries(self) -> None:
        """Complete the node's folder of libraries, if they have just been copied, and link to it."""
        if self._libraries is None:
            return
        if not self._libraries.is_dir():
            self._libraries.parent.mkdir(exist_ok=True)
            complete_folder(self._folder.copied_libraries, self._libraries)
        self._folder.libraries.symlink_to(self._libraries)

    def _hold_ports(self, count: int) -> int:
        """Find free ports in a row, and hold them until the programs start; return the first one."""
        firsts = range(FIRST_PORT, LAST_PORT - count)
        for first in random.sample(firsts, len(firsts)):  # so that nodes on one host seldom try the same
            with ExitStack() as stack, suppress(OSError):
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("", port))
                self._ports = stack.pop_all()
                return first
        raise OSError(f"there are no {count} free ports in a row between {FIRST_PORT} and {LAST_PORT}")

    async def _pass_on_reports(self, folder: Path) -> None:
        """Pass on what processes report in a folder, and report their ends; return when the run ends."""
        checked_s = 0.0
        while self._ending is None:
            for path in sorted(folder.glob("*.tsv")):
                self._pass_on(path)
            if time.monotonic() >= checked_s + _CHECK_S:
                checked_s = time.monotonic()
                for slot, pid in list(self._executors.items()):
                    if process_state(pid) in {"", "Z"}:
                        del self._executors[slot]
                        reason = f"worker {slot} of {self._welcome.node} (process {pid}) has ended"
                        self._failed(reason, slot=slot, died=True)
            await asyncio.sleep(_POLL_S)

    def _pass_on(self, path: Path) -> None:
        begin = self._read.get(path.name, 0)
        if begin == path.stat().st_size:
            return
        with path.open("rb") as file:
            file.seek(begin)
            appended = file.read(MOST_LINES)
        complete = appended[: appended.rfind(b"\n") + 1]
        name = REPORT_FILE.fullmatch(path.name)
        if not complete or name is None:
            return
        if not begin:
            self._executors[int(name["slot"])] = int(name["pid"])
        self._read[path.name] = begin + len(complete)
        self._send(Lines(epoch=self.epoch, file=path.name, text=complete.decode(errors="replace")))

    async def _end(self, wait_s: float) -> None:
        self._ports.close()
        if self._launching is not None:
            await asyncio.wait([self._launching])
        sampled = self._sensors is None or await asyncio.to_thread(self._sensors.stop, wait_s)
        await asyncio.to_thread(self._end_processes)
        if not sampled:
            self._failed(f"a sensor does not return: the last samples of {self._welcome.node} are missing")
        with suppress(OSError):
            await asyncio.to_thread(copy_logs, self._folder.logs, self._folder.log_ends)

    def _end_processes(self) -> None:
        """Send SIGKILL to all processes of the run until none is left."""
        while pids := self.processes:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                # Orphans; the event loop waits for the programs.
                if pid not in self._programs:
                    with suppress(ChildProcessError):
                        os.waitpid(pid, os.WNOHANG)
            time.sleep(0.02)

    def _failed(self, reason: str, *, slot: int = AGENT, log: str = "", died: bool = False) -> None:
        self._send(Failed(epoch=self.epoch, slot=slot, reason=reason, log=log or str(self._log), died=died))

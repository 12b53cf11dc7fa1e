"""Stacks of the workers, sampled from outside by py-spy: what a worker does with its CPU time, function by function.

A py-spy per worker reads the worker's memory a hundred times a second, without stopping it, whenever it is at work or
waits for a processor.
A file holds one line per stack, `outermost;...;innermost count`, as flame graph tools take it. A stack that changes
while it is read may come out short; that is the price of not holding up what is being measured.

Where there is no py-spy, or the kernel does not let it read, there are reasons in place of files; no run fails of it.
"""

import asyncio
import logging
import os
import shutil
import signal
import sysconfig
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from pathlib import Path

from agents.protocol import Profile

RATE = 100
"""Samples per second and worker."""

PATIENCE_S = 10.0
"""How long py-spy may take to write its file."""

_MOST_SHOWN = 300

_log = logging.getLogger(__name__)


def find_py_spy() -> str | None:
    """The program, beside our own Python or on the path."""
    beside = Path(sysconfig.get_path("scripts")) / "py-spy"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")


class Profiling:
    """From `Sampling` on to `Sampling` off, on one node."""

    def __init__(self, folder: Path, below: Path, node: str) -> None:
        """Sample nothing yet; files go to `folder`, and are named in reports relative to `below`."""
        self._folder, self._below, self._node = folder, below, node
        self._watching: list[tuple[int, Path, asyncio.Future[Process]]] = []

    def watch(self, slot: int, pid: int) -> None:
        """Sample a worker process from now on."""
        again = sum(other == slot for other, _, _ in self._watching)
        name = f"{self._node}-{slot}" + (f"-{again + 1}" if again else "")
        file = self._folder / f"{name}.folded"
        self._watching.append((slot, file, asyncio.ensure_future(self._start(pid, file))))

    async def end(self) -> tuple[Profile, ...]:
        """Stop sampling; return what there is, and why there is no more."""
        watching, self._watching = self._watching, []
        return tuple(await asyncio.gather(*(self._finish(*each) for each in watching)))

    async def _start(self, pid: int, file: Path) -> Process:
        program = find_py_spy()
        if program is None:
            raise OSError("py-spy is not installed")
        self._folder.mkdir(exist_ok=True)
        options = ("--nonblocking", "--function", "--format", "raw", "--rate", str(RATE))
        # A session of its own: Ctrl-C on a terminal is for the controller alone. It ends with the worker.
        return await asyncio.create_subprocess_exec(
            *(program, "record", *options, "--pid", str(pid), "--output", str(file)),
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=PIPE,
            start_new_session=True,
        )

    async def _finish(self, slot: int, file: Path, starting: "asyncio.Future[Process]") -> Profile:
        try:
            process = await starting
        except OSError as fault:
            return Profile(slot, reason=str(fault))
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        try:
            async with asyncio.timeout(PATIENCE_S):
                _, said = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            return Profile(slot, reason=f"py-spy did not end within {PATIENCE_S:g} s")
        if process.returncode != 0 or not file.exists():
            _log.info("py-spy of worker %s ended with %s: %s", slot, process.returncode, said.decode(errors="replace"))
            return Profile(slot, reason=_why(process.returncode, said.decode(errors="replace")))
        return Profile(slot, str(file.relative_to(self._below)), _samples(file))


def _samples(file: Path) -> int:
    with file.open(errors="replace") as lines:
        return sum(int(line.rpartition(" ")[2]) for line in lines if line.strip())


def _why(status: int | None, said: str) -> str:
    if status == -signal.SIGINT:
        return "it was over before py-spy had begun"
    if "permission denied" in said.lower():
        return "the kernel does not let py-spy read the worker's memory (ptrace)"
    line = next((line for line in said.splitlines() if line.strip()), "it said nothing")
    return f"py-spy: {line.removeprefix('Error: ')[:_MOST_SHOWN]}"

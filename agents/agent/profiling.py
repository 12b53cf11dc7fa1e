"""Stacks of the workers, sampled by py-spy: the CPU time of a worker by function.

One py-spy process per worker reads the worker's memory a hundred times a second while the worker runs or waits for a
CPU. It does not pause the worker, so a stack that changes during the read may be truncated. A file has one line per
stack, `outermost;...;innermost count`, the input format of flame graph tools.

Where py-spy is missing or the kernel denies access, a reason is reported in place of a file; runs do not fail.
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

_MAX_SHOWN = 300

_log = logging.getLogger(__name__)


def find_py_spy() -> str | None:
    """Return the path of py-spy, beside this Python or on the path; None if it is not installed."""
    beside = Path(sysconfig.get_path("scripts")) / "py-spy"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")


class Profiling:
    """Sampling of the stacks of a node's workers, from `Sampling` on to `Sampling` off."""

    def __init__(self, folder: Path, below: Path, node: str) -> None:
        """Prepare sampling; files are written to `folder`, and reported relative to `below`."""
        self._folder, self._below, self._node = folder, below, node
        self._watching: list[tuple[int, Path, asyncio.Future[Process]]] = []

    def watch(self, slot: int, pid: int) -> None:
        """Sample a worker process from now on."""
        again = sum(other == slot for other, _, _ in self._watching)
        name = f"{self._node}-{slot}" + (f"-{again + 1}" if again else "")
        file = self._folder / f"{name}.folded"
        self._watching.append((slot, file, asyncio.ensure_future(self._start(pid, file))))

    async def end(self) -> tuple[Profile, ...]:
        """Stop sampling; return a profile, or the reason why there is none, for each worker."""
        watching, self._watching = self._watching, []
        return tuple(await asyncio.gather(*(self._finish(*each) for each in watching)))

    async def _start(self, pid: int, file: Path) -> Process:
        program = find_py_spy()
        if program is None:
            raise OSError("py-spy is not installed")
        self._folder.mkdir(exist_ok=True)
        options = ("--nonblocking", "--function", "--format", "raw", "--rate", str(RATE))
        # A session of its own, because Ctrl-C on a terminal is for the controller alone. It ends with the worker.
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
                _, output = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            return Profile(slot, reason=f"py-spy did not end within {PATIENCE_S:g} s")
        if process.returncode != 0 or not file.exists():
            text = output.decode(errors="replace")
            _log.info("py-spy of worker %s ended with %s: %s", slot, process.returncode, text)
            return Profile(slot, reason=_failure_reason(process.returncode, text))
        return Profile(slot, str(file.relative_to(self._below)), _samples(file))


def _samples(file: Path) -> int:
    with file.open(errors="replace") as lines:
        return sum(int(line.rpartition(" ")[2]) for line in lines if line.strip())


def _failure_reason(status: int | None, output: str) -> str:
    if status == -signal.SIGINT:
        return "sampling ended before py-spy had started"
    if "permission denied" in output.lower():
        return "the kernel does not let py-spy read the worker's memory (ptrace)"
    line = next((line for line in output.splitlines() if line.strip()), "it printed nothing")
    return f"py-spy: {line.removeprefix('Error: ')[:_MAX_SHOWN]}"

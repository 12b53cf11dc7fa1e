"""Reports of a node about its running workers: `Vitals`, and sampled stacks.

Vitals are computed from the rows that the node's sensors deliver for the traces.

Stacks are sampled by py-spy: the CPU time of a worker by function. One py-spy process per worker reads the worker's
memory a hundred times a second while the worker runs or waits for a CPU. It does not pause the worker, so a stack that
changes during the read may be truncated. A file has one line per stack, `outermost;...;innermost count`, the input
format of flame graph tools. Where py-spy is missing or the kernel denies access, a reason is reported in place of a
file; runs do not fail.
"""

import asyncio
import logging
import os
import shutil
import signal
import sysconfig
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Iterable
from contextlib import suppress
from math import fsum
from pathlib import Path

from msgspec import structs

from agents.cpu.topology import read_policies, read_topology
from agents.host_files import HostFiles
from agents.protocol import Profile, Vitals
from agents.sensors import Row

RATE = 100
"""Samples per second and worker."""

PATIENCE_S = 10.0
"""Timeout for py-spy to write its file."""

_MAX_SHOWN = 300

_log = logging.getLogger(__name__)


def vitals_of(epoch: int, rows: Iterable[Row]) -> Vitals | None:
    """Return the CPU use of the node and its workers in one sample; None if the sample has no CPU rows."""
    cores: dict[tuple[str, str], float] = {}
    for row in rows:
        if row.table == "cpu":
            scope, name, used, *_ = row.values
            cores[scope, name] = used
    of_node = [used for (scope, _), used in cores.items() if scope == "node"]
    of_workers = {int(name): used for (scope, name), used in cores.items() if scope == "worker" and name.isdigit()}
    return Vitals(epoch=epoch, cores=of_node[0] if of_node else None, workers=of_workers) if cores else None


class EnergyTotal:
    """Joules of a node: the sum over the terms of its total."""

    def __init__(self) -> None:
        self._newest: dict[str, tuple[int, float | None, str, bool]] = {}

    def add(self, rows: Iterable[Row]) -> None:
        """Add the power rows of a sample; those of a machine that carries other nodes too are no energy of this one."""
        for row in rows:
            if row.table == "power":
                domain, _, source, in_total, _, _, joules, *_, flags, is_shared = row.values
                if in_total and not is_shared:
                    self._newest[domain] = row.t_ns, joules, source, "modelled" in flags.split(",")

    def added_to(self, vitals: Vitals) -> Vitals:
        """Return `vitals` with energy, if it is known."""
        times, joules, sources, modelled = zip(*self._newest.values(), strict=True) if self._newest else ((),) * 4
        known = [each for each in joules if each is not None]
        if not known or len(known) < len(joules):
            return vitals
        total = fsum(known)
        return structs.replace(vitals, joules=total, joules_ns=min(times), source=sources[0], modelled=any(modelled))


class NodeVitals:
    """Vitals of a node in an observed run: CPU, energy and clock; called once per sample, from one thread."""

    def __init__(self, host: HostFiles) -> None:
        self._host = host
        self._policies = read_policies(host, read_topology(host).online)
        self._energy = EnergyTotal()

    def vitals_of(self, epoch: int, rows: Iterable[Row]) -> Vitals | None:
        """Return the vitals in one sample; None if it has no CPU rows."""
        rows = list(rows)
        self._energy.add(rows)
        vitals = vitals_of(epoch, rows)
        if vitals is None:
            return None
        at_ns = max(row.t_ns for row in rows if row.table == "cpu")
        return self._energy.added_to(structs.replace(vitals, at_ns=at_ns, hz=self._mean_hz()))

    def _mean_hz(self) -> float | None:
        """Return the mean current clock of all CPUs with a cpufreq policy; None without any."""
        clocks: list[float] = []
        for policy in self._policies:
            text = self._host.read_if_there(policy.file("scaling_cur_freq"))
            if text and text.isdigit() and int(text):
                clocks += [int(text) * 1000.0] * len(policy.cpus)
        return fsum(clocks) / len(clocks) if clocks else None


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
        return Profile(slot, str(file.relative_to(self._below)), _keep_stacks(file))


def _keep_stacks(file: Path) -> int:
    """Remove samples without a stack from a file; return the number of those that are left.

    py-spy does not stop the worker, and reads nothing from a thread that changes its stack at that moment.
    """
    with file.open(errors="replace") as opened:
        lines = list(opened)
    stacks = [line for line in lines if line.rpartition(" ")[0].strip()]
    if len(stacks) < len(lines):
        file.write_text("".join(stacks))
    return sum(int(line.rpartition(" ")[2]) for line in stacks)


def _failure_reason(status: int | None, output: str) -> str:
    if status == -signal.SIGINT:
        return "sampling ended before py-spy had started"
    if "permission denied" in output.lower():
        return "the kernel does not let py-spy read the worker's memory (ptrace)"
    line = next((line for line in output.splitlines() if line.strip()), "it printed nothing")
    return f"py-spy: {line.removeprefix('Error: ')[:_MAX_SHOWN]}"

"""Runs on real node agents of this host under the campaign's own control, for measurements of the data plane.

Agents are started once; runs follow one another on them. What is measured is what nodes report, and the CPU time of all
processes of the run. The workloads `keyed-state` and `running-count` are there besides those that are installed.
"""

import math
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "tests" / "support"))

from ground import Ground, Play, ground, kill  # noqa: E402, F401 - the path comes first; `kill` is for others

from agents.protocol import Message, Progress, Slot  # noqa: E402
from agents.sensors.kernel import process_cpu_ns  # noqa: E402
from controller.coordinator.checkpoint_loop import ControlSettings  # noqa: E402
from controller.coordinator.online_loop import OnlineSettings  # noqa: E402
from workloads.workload import load_workload  # noqa: E402

_PACKAGE = {
    "METADATA": "Metadata-Version: 2.1\nName: bench-workloads\nVersion: 0\n",
    "entry_points.txt": "[millrace.workloads]\nkeyed-state = keyed_state:KeyedState\n"
    "running-count = running_count:RunningCount\n",
}


@contextmanager
def installed() -> Iterator[Path]:
    """A temporary folder; while it is there, the benchmarks' own workloads are installed for all processes to come."""
    with tempfile.TemporaryDirectory(prefix="millrace-bench-", dir=os.environ.get("TMPDIR")) as name:
        site = Path(name) / "site"
        package = site / "bench_workloads-0.dist-info"
        package.mkdir(parents=True)
        for file, text in _PACKAGE.items():
            (package / file).write_text(text)
        for module in ("keyed_state.py", "running_count.py", "running_count_columns.py", "unobserved.py"):
            (site / module).symlink_to(HERE / module)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
        sys.path.insert(0, str(site))
        yield Path(name)


@asynccontextmanager
async def nodes(count: int) -> AsyncIterator[Ground]:
    """Agents of `count` nodes, n0 and following."""
    with installed() as folder:
        async with ground(folder, [f"n{at}" for at in range(count)]) as found:
            yield found


class Totals:
    """What workers have reported: rows into sinks since their start, and when they said so."""

    def __init__(self) -> None:
        self._last: dict[Slot, Progress] = {}

    def __call__(self, way: str, node: str, message: Message) -> None:
        """Watch what is heard."""
        if way == "heard" and isinstance(message, Progress):
            self._last[Slot(node, message.slot)] = message

    @property
    def sunk(self) -> int:
        """Rows that sinks have processed."""
        return sum(said.sunk for said in self._last.values())

    @property
    def emitted(self) -> int:
        """Records that sources have emitted."""
        return sum(said.emitted for said in self._last.values())

    @property
    def at_s(self) -> float:
        """Mean time of the reports."""
        return sum(said.at_ns for said in self._last.values()) / len(self._last) / 1e9


@asynccontextmanager
async def run(
    on: Ground,
    workload: str,
    params: Mapping[str, Any],
    places: Mapping[str, str],
    rate: Mapping[str, Any],
    online: OnlineSettings | None = None,
    **course: Any,
) -> AsyncIterator[tuple[Play, Totals]]:
    """One run whose sources have started; afterwards it is ended, and its answer is compared with the reference."""
    totals, settings = Totals(), ControlSettings(**course)
    async with on.run(load_workload(workload, params), places, rate, settings, totals, online) as play:
        start_ns = await play.coordinator.start()
        await play.coordinator.wait_until(start_ns)
        yield play, totals
        verdict = await play.end()
        if not verdict.passed:
            raise SystemExit(f"the answer is wrong: {verdict.message}")


async def wait(play: Play, seconds: float) -> None:
    """Let the run go on."""
    await play.coordinator.wait_until(time.monotonic_ns() + round(seconds * 1e9))


async def rows_per_s(play: Play, totals: Totals, seconds: float) -> float:
    """Rows into sinks per second, over `seconds` from now on."""
    before = await _marked(play, totals, "measure_start")
    await wait(play, seconds)
    after = await _marked(play, totals, "measure_end")
    return (after[0] - before[0]) / (after[1] - before[1])


async def _marked(play: Play, totals: Totals, kind: str) -> tuple[int, float]:
    # A mark makes every worker report at once.
    await play.coordinator.mark(kind)
    await wait(play, 0.2)
    return totals.sunk, totals.at_s


async def restarts(
    on: Ground, params: Mapping[str, Any], places: Mapping[str, str], rate: Mapping[str, Any], count: int
) -> Sequence[float]:
    """Seconds without output when everything is stopped, drained and started again.

    The state begins anew; what saving it and reading it again would take is left out.
    """
    paused, stopped = [], 0.0
    for _ in range(count + 1):
        async with on.run(load_workload("keyed-state", params), places, rate, ControlSettings()) as play:
            await play.coordinator.wait_until(await play.coordinator.start())
            paused.append(time.monotonic() - stopped)
            await wait(play, 1.0)
            stopped = time.monotonic()
            await play.coordinator.stop()
            await play.coordinator.finish()
    # Nothing had been stopped before the first one.
    return paused[1:]


def diary(path: Path) -> Sequence[tuple[int, int, int]]:
    """What restored keepers wrote: index, last work before, first work again, by time."""
    if not path.exists():
        return ()
    lines = [tuple(map(int, line.split())) for line in path.read_text().splitlines()]
    return sorted(((index, before, again) for index, before, again in lines), key=lambda line: line[2])


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of `values` that is not below so much of them."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def processes(on: Ground) -> Sequence[psutil.Process]:
    """Agents, and all that they have started."""
    found = [psutil.Process(known.pid) for known in on.agent_processes.values() if known is not None]
    return [*found, *(child for agent in found for child in agent.children(recursive=True))]


def cpu_s(of: Sequence[psutil.Process]) -> float:
    """CPU time of processes that are still there; to the nanosecond, for those that hardly use any."""
    return sum(process_cpu_ns(process.pid) or 0 for process in of) / 1e9


def load() -> str:
    """The machine's load, and how we stand to it, for the record."""
    mine = os.nice(0)
    return f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}{f', nice {mine}' if mine else ''}"

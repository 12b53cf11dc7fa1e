"""Start node agents on this host and run topologies on them, for benchmarks of the data plane and of online runs.

Agents start once; runs follow one another. Rates come from worker reports, CPU time from the processes of the run.
The workloads `keyed-state` and `running-count` are available in addition to the installed ones.
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

# These imports need the path above.
from loopback_agents import ControlledRun as Run  # noqa: E402
from loopback_agents import LoopbackAgents as Nodes  # noqa: E402
from loopback_agents import kill  # noqa: E402
from loopback_agents import loopback_agents as start_agents  # noqa: E402

from agents.protocol import Message, Progress, Slot  # noqa: E402
from agents.sensors.kernel import process_cpu_ns  # noqa: E402
from controller.coordinator.checkpoint_loop import ControlSettings  # noqa: E402
from controller.coordinator.online_loop import OnlineSettings  # noqa: E402
from controller.coordinator.scripted_events import MoveExecutors  # noqa: E402
from workloads.workload import load_workload  # noqa: E402

__all__ = [
    "Nodes",
    "Run",
    "Totals",
    "cpu_s",
    "install_workloads",
    "kill",
    "load",
    "percentile",
    "processes",
    "read_batch_log",
    "rows_per_s",
    "start_nodes",
    "start_run",
    "stop_and_restart",
    "wait",
]

_MODULES = ("keyed_state.py", "running_count.py", "running_count_columns.py", "instrumentation.py")
_PACKAGE = {
    "METADATA": "Metadata-Version: 2.1\nName: bench-workloads\nVersion: 0\n",
    "entry_points.txt": "[millrace.workloads]\nkeyed-state = keyed_state:KeyedStateWorkload\n"
    "running-count = running_count:RunningCount\n",
}


@contextmanager
def install_workloads() -> Iterator[Path]:
    """Install the benchmark workloads in a temporary folder, for all processes that start before it is removed."""
    with tempfile.TemporaryDirectory(prefix="millrace-bench-", dir=os.environ.get("TMPDIR")) as name:
        site = Path(name) / "site"
        package = site / "bench_workloads-0.dist-info"
        package.mkdir(parents=True)
        for file, text in _PACKAGE.items():
            (package / file).write_text(text)
        for module in _MODULES:
            (site / module).symlink_to(HERE / module)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
        sys.path.insert(0, str(site))
        yield Path(name)


@asynccontextmanager
async def start_nodes(count: int) -> AsyncIterator[Nodes]:
    """Start the agents of `count` nodes: n0, n1, and so on."""
    with install_workloads() as folder:
        async with start_agents(folder, [f"n{index}" for index in range(count)]) as nodes:
            yield nodes


class Totals:
    """Sums of the last report of every worker."""

    def __init__(self) -> None:
        self._last: dict[Slot, Progress] = {}

    def __call__(self, direction: str, node: str, message: Message) -> None:
        """Record a report; other messages are ignored."""
        if isinstance(message, Progress):
            self._last[Slot(node, message.slot)] = message

    @property
    def sink_rows(self) -> int:
        """Rows that sinks have processed."""
        return sum(report.sunk for report in self._last.values())

    @property
    def emitted(self) -> int:
        """Records that sources have emitted."""
        return sum(report.emitted for report in self._last.values())

    @property
    def at_s(self) -> float:
        """Mean time of the reports, on the monotonic clock."""
        return sum(report.at_ns for report in self._last.values()) / len(self._last) / 1e9


@asynccontextmanager
async def start_run(
    nodes: Nodes,
    workload: str,
    params: Mapping[str, Any],
    places: Mapping[str, str],
    rate: Mapping[str, Any],
    online: OnlineSettings | None = None,
    *,
    sensors: tuple[str, ...] = (),
    checkpoint_s: float = 0.0,
    moves: tuple[MoveExecutors, ...] = (),
) -> AsyncIterator[tuple[Run, Totals]]:
    """Start a run and yield it once its sources have started; then end it and check its answer.

    Raises:
        SystemExit: the answer differs from the reference.
    """
    totals, settings = Totals(), ControlSettings(sensors, checkpoint_s, moves)
    async with nodes.run(load_workload(workload, params), places, rate, settings, totals, online) as run:
        start_ns = await run.coordinator.start()
        await run.coordinator.wait_until(start_ns)
        yield run, totals
        verdict = await run.end()
        if not verdict.passed:
            raise SystemExit(f"the answer is wrong: {verdict.message}")


async def wait(run: Run, seconds: float) -> None:
    """Wait while the run continues."""
    await run.coordinator.wait_until(time.monotonic_ns() + round(seconds * 1e9))


async def rows_per_s(run: Run, totals: Totals, seconds: float) -> float:
    """Measure the rows per second into sinks over the next `seconds`."""
    before = await _sink_rows_at(run, totals, "measure_start")
    await wait(run, seconds)
    after = await _sink_rows_at(run, totals, "measure_end")
    return (after[0] - before[0]) / (after[1] - before[1])


async def _sink_rows_at(run: Run, totals: Totals, kind: str) -> tuple[int, float]:
    # After a mark, every worker reports at once.
    await run.coordinator.mark(kind)
    await wait(run, 0.2)
    return totals.sink_rows, totals.at_s


async def stop_and_restart(
    nodes: Nodes, params: Mapping[str, Any], places: Mapping[str, str], rate: Mapping[str, Any], count: int
) -> Sequence[float]:
    """Stop, drain and start `keyed-state` again, `count` times; return the seconds without output.

    State starts empty, so that the time to save and restore it is not included.
    """
    paused, stopped = [], 0.0
    for _ in range(count + 1):
        async with nodes.run(load_workload("keyed-state", params), places, rate, ControlSettings()) as run:
            await run.coordinator.wait_until(await run.coordinator.start())
            paused.append(time.monotonic() - stopped)
            await wait(run, 1.0)
            stopped = time.monotonic()
            await run.coordinator.stop()
            await run.coordinator.finish()
    # There was no stop before the first start.
    return paused[1:]


def read_batch_log(path: Path) -> Sequence[tuple[int, int, int]]:
    """Return what restored bolts of `keyed-state` have logged: index, last batch before, first batch after, in ns.

    Entries are in order of the first batch after.
    """
    if not path.exists():
        return ()
    lines = [tuple(map(int, line.split())) for line in path.read_text().splitlines()]
    return sorted(((index, before, after) for index, before, after in lines), key=lambda line: line[2])


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that is at least as large as `share` of all values."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def processes(nodes: Nodes) -> Sequence[psutil.Process]:
    """Return the agents and all their descendants."""
    agents = [psutil.Process(known.pid) for known in nodes.agent_processes.values() if known is not None]
    return [*agents, *(child for agent in agents for child in agent.children(recursive=True))]


def cpu_s(processes: Sequence[psutil.Process]) -> float:
    """Return the CPU time of those processes that still run, with a resolution of nanoseconds."""
    return sum(process_cpu_ns(process.pid) or 0 for process in processes) / 1e9


def load() -> str:
    """Return the number of CPUs, the load average, and the nice value of this process, as text."""
    nice = os.nice(0)
    return f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}{f', nice {nice}' if nice else ''}"

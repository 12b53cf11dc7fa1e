"""Worker processes without an agent: the data plane alone, for measurements.

Speaks the control protocol over pipes, as the node agent does.
"""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import psutil

from agents import protocol
from agents.protocol import (
    Connect,
    Connected,
    Drained,
    ExecutorSpec,
    Failed,
    Finish,
    Go,
    InputFile,
    Listening,
    Place,
    Progress,
    RunSpec,
    Start,
    Stop,
    Welcome,
    workers_of,
)
from inventory.documents import to_plain
from workloads.registry import load_workload

WORKER = """
import sys
from agents.trace import settle_without_pandas
from agents.worker.__main__ import main

settle_without_pandas()
sys.exit(main())
"""
"""One worker, without the fork server."""

M = TypeVar("M")


@dataclass(frozen=True)
class Cost:
    """CPU seconds of all workers, the largest worker's RSS in MB summed over workers, wall seconds, rows at sinks."""

    cpu_s: float
    rss_mb: float
    wall_s: float
    rows: int

    @property
    def cpu_s_per_million(self) -> float:
        """CPU seconds per million rows that reached a sink."""
        return self.cpu_s / self.rows * 1e6


class Workers:
    """One run of a workload on workers of this host, 127.0.0.2 and following."""

    def __init__(
        self,
        folder: Path,
        workload: str,
        params: Mapping[str, Any],
        places: Mapping[str, int],
        workers: int,
        rate: Mapping[str, Any],
    ) -> None:
        """`places` maps executor names to worker numbers; executors that are not named go to worker 0."""
        made = load_workload(workload, params)
        topology = made.topology()
        (folder / "inputs").mkdir(parents=True, exist_ok=True)
        inputs = made.prepare(folder / "inputs")
        self.folder = folder
        self.addresses = {f"n{at}": f"127.0.0.{at + 2}" for at in range(workers)}
        executors = tuple(
            ExecutorSpec(e.component, e.index, Place(f"n{places.get(e.name, 0)}", 0)) for e in topology.executors
        )
        self.spec = RunSpec(
            run=f"bench-{secrets.token_hex(4)}",
            epoch=1,
            workload=workload,
            params=params,
            topology=to_plain(topology),
            executors=executors,
            workers=workers_of(executors),
            addresses=self.addresses,
            key=secrets.token_hex(32),
            rate=rate,
            seed=1,
            inputs=tuple(InputFile(i.name, i.path.name, i.sha256) for i in inputs),
        )

    def __enter__(self) -> Self:
        self._processes = [
            subprocess.Popen([sys.executable, "-P", "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in self.addresses
        ]
        for process, (node, address) in zip(self._processes, self.addresses.items(), strict=True):
            welcome = Welcome(version=protocol.VERSION, node=node, address=address, folder=str(self.folder), slot=0)
            self._tell(process, welcome, Start(spec=self.spec))
        ports = {
            f"{node}/0": self._await(process, Listening).port
            for process, node in zip(self._processes, self.addresses, strict=True)
        }
        self._all(Connect(epoch=1, ports=ports))
        for process in self._processes:
            self._await(process, Connected)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def race(self, seconds: float, warm_up: float = 1.0) -> Cost:
        """Run the sources for `seconds` after a warm-up, drain, and say what it cost."""
        self._all(Go(epoch=1, at_ns=time.monotonic_ns()))
        time.sleep(warm_up)
        before, started = self._cpu(), time.monotonic()
        rows_before = self._sunk()
        time.sleep(seconds)
        self._all(Stop(epoch=1))
        drained = [self._await(process, Drained) for process in self._processes]
        wall, cpu = time.monotonic() - started, self._cpu() - before
        rss = sum(psutil.Process(p.pid).memory_info().rss for p in self._processes) / 1e6
        assert len(drained) == len(self._processes)
        rows = self._last_sunk() - rows_before
        self._all(Finish(epoch=1))
        for process in self._processes:
            process.wait(10)
        return Cost(cpu, rss, wall, rows)

    def _cpu(self) -> float:
        times = [psutil.Process(p.pid).cpu_times() for p in self._processes]
        return float(sum(t.user + t.system for t in times))

    def _sunk(self) -> int:
        self._counts: dict[int, int] = {}
        return sum(self._await(process, Progress, latest=True).sunk for process in self._processes)

    def _last_sunk(self) -> int:
        return sum(self._counts.values())

    def _all(self, message: protocol.Message) -> None:
        for process in self._processes:
            self._tell(process, message)

    @staticmethod
    def _tell(process: subprocess.Popen[bytes], *messages: protocol.Message) -> None:
        assert process.stdin is not None
        for message in messages:
            process.stdin.write(protocol.encode(message))
        process.stdin.flush()

    def _await(self, process: subprocess.Popen[bytes], kind: type[M], latest: bool = False) -> M:
        assert process.stdout is not None
        while True:
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"a worker ended with status {process.wait()}")
            report = protocol.decode_report(line)
            if isinstance(report, Failed):
                raise RuntimeError(report.reason)
            if isinstance(report, Progress):
                self._counts = getattr(self, "_counts", {})
                self._counts[process.pid] = report.sunk
            if isinstance(report, kind):
                return report


def temporary() -> Path:
    """A new folder for one benchmark."""
    import tempfile

    return Path(tempfile.mkdtemp(prefix="millrace-bench-", dir=os.environ.get("TMPDIR")))


def spread(components: Sequence[tuple[str, int]], workers: int) -> dict[str, int]:
    """Executor i of every component on worker i mod `workers`."""
    return {f"{name}[{index}]": index % workers for name, count in components for index in range(count)}

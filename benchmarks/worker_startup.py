"""What a worker process costs to start, beside a Python that does nothing and one that imports the worker's program.

    .venv/bin/python benchmarks/worker_startup.py [--workers N]

Workers are spawned as an agent does it. CPU time is that of the worker until it waits for its first command, and of
the fork server for making it; memory is resident, and what of it no other process shares.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from agents.agent.spawner import Spawner
from agents.sensors.kernel import process_cpu_ns

REPETITIONS = 11
IMPORTS = "import agents.worker.__main__; from agents.arrow_import import skip_pandas_import; skip_pandas_import()"
SAY_RSS = "print(*(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmRSS')))"


def alone(code: str) -> tuple[float, float]:
    """CPU ms and RSS in MB of a Python that runs `code`, medians."""
    cpu, rss = [], []
    for _ in range(REPETITIONS):
        reading, writing = os.pipe()
        process = subprocess.Popen([sys.executable, "-P", "-c", f"{code}\n{SAY_RSS}"], stdout=writing)
        os.close(writing)
        _pid, _status, used = os.wait4(process.pid, 0)
        with os.fdopen(reading) as said:
            rss.append(int(said.read()) / 1024)
        cpu.append((used.ru_utime + used.ru_stime) * 1e3)
    return statistics.median(cpu), statistics.median(rss)


def cpu_ms(pid: int) -> float:
    """CPU time of a process and of the children that it has waited for."""
    times = psutil.Process(pid).cpu_times()
    return (process_cpu_ns(pid) or 0) / 1e6 + (times.children_user + times.children_system) * 1e3


async def forked(count: int) -> None:
    """Fork workers and print what they cost."""
    spawner = Spawner()
    began = time.perf_counter()
    await spawner.warm()
    warm_s = time.perf_counter() - began
    server = psutil.Process().children()[0].pid
    before_ms = cpu_ms(server)
    with tempfile.TemporaryDirectory() as name, (Path(name) / "log").open("ab") as log:
        folder = os.open(name, os.O_RDONLY)
        began = time.perf_counter()
        workers = [await spawner.spawn(log.fileno(), folder) for _ in range(count)]
        took_s = time.perf_counter() - began
        os.close(folder)
    server_ms = (cpu_ms(server) - before_ms) / count
    while any(psutil.Process(worker.pid).status() != psutil.STATUS_SLEEPING for worker in workers):
        await asyncio.sleep(0.1)
    own_ms = statistics.median((process_cpu_ns(worker.pid) or 0) / 1e6 for worker in workers)
    memory = [psutil.Process(worker.pid).memory_full_info() for worker in workers]
    rss, private = (statistics.median(values) / 2**20 for values in zip(*((m.rss, m.uss) for m in memory), strict=True))
    print(f"fork server: ready after {warm_s:.2f} s, {before_ms:.0f} CPU ms")
    print(
        f"{count} workers in {took_s:.2f} s; each: CPU {own_ms:.1f} ms and {server_ms:.1f} ms of the server's, "
        f"RSS {rss:.0f} MB, of which private {private:.1f} MB"
    )
    for worker in workers:
        os.close(worker.stdin)
        worker.reap()
    await spawner.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=100)
    chosen = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    for code, what in (("pass", "python -c pass"), (IMPORTS, "python that imports the worker's program")):
        cpu, rss = alone(code)
        print(f"{what}: CPU {cpu:.0f} ms, RSS {rss:.0f} MB")
    asyncio.run(forked(chosen.workers))


if __name__ == "__main__":
    main()

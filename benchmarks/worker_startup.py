"""Measure the cost of a worker process, beside a Python that does nothing and one that imports the worker's program.

    .venv/bin/python benchmarks/worker_startup.py [--workers N]

Workers are spawned as an agent does it. CPU time is that of the worker until it waits for its first command, plus that
of the fork server for the fork. Memory is resident, and the part of it that is not shared.
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
PRINT_RSS = "print(*(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmRSS')))"


def measure_python(code: str) -> tuple[float, float]:
    """Return the median CPU ms and RSS in MB of a Python that runs `code`."""
    cpu, rss = [], []
    for _ in range(REPETITIONS):
        reading, writing = os.pipe()
        process = subprocess.Popen([sys.executable, "-P", "-c", f"{code}\n{PRINT_RSS}"], stdout=writing)
        os.close(writing)
        _pid, _status, used = os.wait4(process.pid, 0)
        with os.fdopen(reading) as output:
            rss.append(int(output.read()) / 1024)
        cpu.append((used.ru_utime + used.ru_stime) * 1e3)
    return statistics.median(cpu), statistics.median(rss)


def cpu_ms(pid: int) -> float:
    """Return the CPU time of a process and of the children that it has waited for."""
    times = psutil.Process(pid).cpu_times()
    return (process_cpu_ns(pid) or 0) / 1e6 + (times.children_user + times.children_system) * 1e3


async def measure_workers(count: int) -> None:
    """Fork workers and print their cost."""
    spawner = Spawner()
    begin = time.perf_counter()
    await spawner.warm()
    warm_s = time.perf_counter() - begin
    server = psutil.Process().children()[0].pid
    before_ms = cpu_ms(server)
    with tempfile.TemporaryDirectory() as name, (Path(name) / "log").open("ab") as log:
        folder = os.open(name, os.O_RDONLY)
        begin = time.perf_counter()
        workers = [await spawner.spawn(log.fileno(), folder) for _ in range(count)]
        fork_s = time.perf_counter() - begin
        os.close(folder)
    server_ms = (cpu_ms(server) - before_ms) / count
    while any(psutil.Process(worker.pid).status() != psutil.STATUS_SLEEPING for worker in workers):
        await asyncio.sleep(0.1)
    own_ms = statistics.median((process_cpu_ns(worker.pid) or 0) / 1e6 for worker in workers)
    memory = [psutil.Process(worker.pid).memory_full_info() for worker in workers]
    rss, private = (statistics.median(values) / 2**20 for values in zip(*((m.rss, m.uss) for m in memory), strict=True))
    print(f"fork server: ready after {warm_s:.2f} s, {before_ms:.0f} CPU ms")
    print(
        f"{count} workers in {fork_s:.2f} s; each: CPU {own_ms:.1f} ms, {server_ms:.1f} ms of the fork server, "
        f"RSS {rss:.0f} MB, of which private {private:.1f} MB"
    )
    for worker in workers:
        os.close(worker.stdin)
        worker.reap()
    await spawner.close()


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=100)
    chosen = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    for code, name in (("pass", "python -c pass"), (IMPORTS, "python that imports the worker's program")):
        cpu, rss = measure_python(code)
        print(f"{name}: CPU {cpu:.0f} ms, RSS {rss:.0f} MB")
    asyncio.run(measure_workers(chosen.workers))


if __name__ == "__main__":
    main()

"""Measure the cost of control and traces on a machine with 100 workers that are almost idle.

    python benchmarks/dataplane/hundred_workers.py [--workers 100] [--seconds 30] [--rate 20]

Four nodes and one executor per worker; a fifth of the executors are spouts, with one row per second each.
Checkpoints every 5 s and all sensors, as agendas have by default. The result is the CPU time of all processes, by kind.
For comparison, as many processes run that only wake up once a second, the minimum for a report per second.
"""

import argparse
import asyncio
import subprocess
import sys
import time
from collections import defaultdict

import psutil
from loopback import Nodes, cpu_s, load, processes, rows_per_s, start_nodes, start_run, wait

NODES = 4
SENSORS = ("cpu", "memory", "network", "power")
IDLE_PROGRAM = "import time\nwhile True: time.sleep(1)"


async def measure(options: argparse.Namespace) -> int:
    """Start the workers, measure, and print the results."""
    spouts = options.workers // 5
    bolts = options.workers - spouts
    names = [*(f"spout[{at}]" for at in range(spouts)), *(f"count[{at}]" for at in range(bolts))]
    places = {name: f"n{at % NODES}/{at // NODES}" for at, name in enumerate(names)}
    params = {"parallelism": {"spout": spouts, "count": bolts}}
    rate = {"kind": "constant", "tuples_per_s": options.rate}
    async with start_nodes(NODES) as nodes:
        began = time.monotonic()
        async with start_run(
            nodes, "keyed-state", params, places, rate, sensors=SENSORS, checkpoint_s=options.checkpoint_s
        ) as (run, totals):
            print(f"{len(names)} workers started in {time.monotonic() - began:.1f} s; {load()}", flush=True)
            await wait(run, 5.0)
            measured = [psutil.Process(), *processes(nodes)]
            before = {process.pid: cpu_s([process]) for process in measured}
            achieved = await rows_per_s(run, totals, options.seconds)
            seconds = options.seconds + 0.2
            used: defaultdict[str, float] = defaultdict(float)
            for process in measured:
                used[process_kind(process, nodes)] += cpu_s([process]) - before[process.pid]
            checkpoints = run.coordinator.event_log.checkpoints
        print(
            f"{achieved:.0f} rows/s; {sum(used.values()) / seconds:.1%} of one core: "
            + ", ".join(f"{kind} {cpu / seconds:.1%}" for kind, cpu in sorted(used.items()))
            + f"; {checkpoints} checkpoints, {len(run.coordinator.event_log.recoveries)} recoveries; {load()}",
            flush=True,
        )
    idle = await measure_idle_processes(options.workers, options.seconds)
    print(f"{options.workers} idle Python processes: {idle:.1%} of one core; {load()}")
    return 0


def process_kind(process: psutil.Process, nodes: Nodes) -> str:
    """Return `controller`, `agents`, or `workers`, which includes their fork servers."""
    if process.pid == psutil.Process().pid:
        return "controller"
    return "agents" if process.pid in {known.pid for known in nodes.agent_processes.values() if known} else "workers"


async def measure_idle_processes(count: int, seconds: float) -> float:
    """Return the cores that `count` processes use that only wake up once a second."""
    started = [subprocess.Popen([sys.executable, "-S", "-c", IDLE_PROGRAM]) for _ in range(count)]
    try:
        await asyncio.sleep(5.0)
        measured = [psutil.Process(process.pid) for process in started]
        before = cpu_s(measured)
        await asyncio.sleep(seconds)
        return (cpu_s(measured) - before) / seconds
    finally:
        for process in started:
            process.kill()
            process.wait()


def main() -> int:
    """Parse the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=30.0, help="measured")
    parser.add_argument("--rate", type=float, default=20.0, help="rows per second of all spouts")
    parser.add_argument("--checkpoint-s", type=float, default=5.0)
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())

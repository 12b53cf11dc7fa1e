"""What control and traces cost on a machine with 100 workers that have next to nothing to do.

    python benchmarks/dataplane/hundred_workers.py [--workers 100] [--seconds 30] [--rate 20]

Four nodes, a worker per executor, a fifth of them spouts with a row a second each; checkpoints every 5 s and all
sensors, as an agenda has it when it says nothing else. CPU time of all processes, by kind; beside it that of as many
processes that do nothing but wake up once a second, which is the least that reports once a second can cost.
"""

import argparse
import asyncio
import subprocess
import sys
import time
from collections import Counter

import psutil
from loopback import Ground, cpu_s, load, nodes, processes, rows_per_s, run, wait

NODES = 4
SENSORS = ("cpu", "memory", "network", "power")
WAKE = "import time\nwhile True: time.sleep(1)"


async def measure(options: argparse.Namespace) -> int:
    """Start, wait, count."""
    spouts = options.workers // 5
    keeps = options.workers - spouts
    names = [*(f"spout[{at}]" for at in range(spouts)), *(f"keep[{at}]" for at in range(keeps))]
    places = {name: f"n{at % NODES}/{at // NODES}" for at, name in enumerate(names)}
    params = {"parallelism": {"spout": spouts, "keep": keeps}}
    rate = {"kind": "constant", "tuples_per_s": options.rate}
    async with nodes(NODES) as on:
        began = time.monotonic()
        async with run(on, "keyed-state", params, places, rate, checkpoint_s=options.checkpoint_s, sensors=SENSORS) as (
            play,
            totals,
        ):
            print(f"{len(names)} workers work after {time.monotonic() - began:.1f} s; {load()}", flush=True)
            await wait(play, 5.0)
            everybody = [psutil.Process(), *processes(on)]
            before = {process.pid: cpu_s([process]) for process in everybody}
            seen = await rows_per_s(play, totals, options.seconds)
            seconds = options.seconds + 0.2
            used: Counter[str] = Counter()
            for process in everybody:
                used[kind_of(process, on)] += cpu_s([process]) - before[process.pid]
            checkpoints = play.coordinator.event_log.checkpoints
        print(
            f"{seen:.0f} rows/s; {sum(used.values()) / seconds:.1%} of one core: "
            + ", ".join(f"{kind} {cpu / seconds:.1%}" for kind, cpu in sorted(used.items()))
            + f"; {checkpoints} checkpoints, {len(play.coordinator.event_log.recoveries)} recoveries; {load()}",
            flush=True,
        )
    print(f"as many sleeping Pythons: {await sleepers(options.workers, options.seconds):.1%} of one core; {load()}")
    return 0


def kind_of(process: psutil.Process, on: Ground) -> str:
    """Controller, agents, or workers with the servers that fork them."""
    if process.pid == psutil.Process().pid:
        return "controller"
    return "agents" if process.pid in {known.pid for known in on.agent_processes.values() if known} else "workers"


async def sleepers(count: int, seconds: float) -> float:
    """CPU time per time of processes that wake up once a second."""
    started = [subprocess.Popen([sys.executable, "-S", "-c", WAKE]) for _ in range(count)]
    try:
        await asyncio.sleep(5.0)
        watched = [psutil.Process(process.pid) for process in started]
        before = cpu_s(watched)
        await asyncio.sleep(seconds)
        return (cpu_s(watched) - before) / seconds
    finally:
        for process in started:
            process.kill()
            process.wait()


def main() -> int:
    """Read the options, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--checkpoint-s", type=float, default=5.0)
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())

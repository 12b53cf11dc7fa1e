"""The control channel over SSH: its round trip, and how long a campaign on five nodes takes to its first tuple.

    .venv/bin/python benchmarks/control/over_ssh.py [--starts N]

The nodes are sshds of this machine on 127.0.0.x. A round trip is a heartbeat of a node's keeper and its answer, beside
one line through `ssh NODE cat` by OpenSSH itself, and one through a pipe to `cat`. A start is `millrace run` as a
process, from its launch until the sources are told to begin.
"""

import argparse
import asyncio
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))

from sshd import Lab, lab

from campaign.ssh.connection import Connection
from campaign.ssh.keeping import Keeping
from campaign.ssh.settings import arguments_of

LINE = b'{"do": "beat"}\n'
ROUND_TRIPS = 2000
NODES = [f"127.0.0.{number}" for number in range(2, 7)]

AGENDA = {
    "name": "start",
    "repetitions": 1,
    "warmup_s": 0.5,
    "duration_s": 1.0,
    "workloads": [
        {
            "name": "wordcount",
            "params": {"workers": 5, "ackers": 0, "parallelism": {"spout": 5, "split": 5, "count": 5}},
            "rate": {"kind": "constant", "tuples_per_s": 300},
        }
    ],
    "schedulers": ["even"],
}


def told(name: str, seconds: Sequence[float]) -> None:
    ordered = sorted(seconds)
    p99 = ordered[int(0.99 * len(ordered))]
    print(f"{name:<44} median {statistics.median(ordered) * 1e6:7.0f} us   p99 {p99 * 1e6:7.0f} us")


def through_cat(command: Sequence[str]) -> list[float]:
    """Seconds that each line takes through a `cat`."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as cat:
        assert cat.stdin is not None
        assert cat.stdout is not None
        found = []
        for _ in range(ROUND_TRIPS + 1):
            begun = time.perf_counter()
            cat.stdin.write(LINE)
            assert cat.stdout.read(len(LINE)) == LINE
            found.append(time.perf_counter() - begun)
        cat.stdin.close()
    return found[1:]


async def heartbeats(nodes: Lab) -> list[float]:
    """Seconds that each heartbeat takes."""
    with ThreadPoolExecutor() as threads:
        connection = Connection(nodes.host("n1"), threads)
        keeping = Keeping(connection, f"campaign-{'0' * 32}", "a benchmark")
        found = []
        await keeping.open()
        for _ in range(ROUND_TRIPS):
            begun = time.perf_counter()
            await keeping.ask("beat")
            found.append(time.perf_counter() - begun)
        await keeping.close()
        await connection.close()
    return found


def start(nodes: Lab, folder: Path) -> tuple[float, dict[str, float]]:
    """Seconds to the first tuple, and those of each part."""
    (folder / "agenda.json").write_text(json.dumps({**AGENDA, "inventory": str(nodes.inventory)}))
    program = "import click; from campaign.cli import main; from campaign.commands import run; "
    program += "run.command.callback = click.pass_obj(lambda s, **given: run.conduct(s, **given)[0]); main()"
    begun = time.time()
    subprocess.run(
        [sys.executable, "-P", "-c", program, "run", "agenda.json"], cwd=folder, check=True, capture_output=True
    )
    (path,) = (folder / "results" / "start").glob("2*/runs/*/run.json")
    times = json.loads(path.read_text())["times"]
    ready, first = (datetime.fromisoformat(times[key]).timestamp() for key in ("created_utc", "started_utc"))
    subprocess.run(["rm", "-r", folder / "results"], check=True)
    parts = {
        "until the run begins": ready - begun,
        **{n: times["stages_s"][n] for n in ("starting agents", "starting workers")},
    }
    return first - begun, parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=5)
    starts = parser.parse_args().starts
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder, lab(Path(folder), NODES) as nodes:
        told("a line through a pipe to cat", through_cat(["cat"]))
        ssh = ["ssh", *arguments_of(nodes.host("n1")), "cat"]
        told(f"a line through {shlex.join(['ssh', 'NODE', 'cat'])}", through_cat(ssh))
        told("a heartbeat over our channel, answered", asyncio.run(heartbeats(nodes)))
        measured = [start(nodes, Path(folder)) for _ in range(starts)]
        print(
            f"launch to first tuple, 5 nodes, {starts} starts: median {statistics.median(s for s, _ in measured):.2f} s"
        )
        for part in measured[0][1]:
            print(f"  {part:<42} median {statistics.median(parts[part] for _, parts in measured):.2f} s")
        print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()

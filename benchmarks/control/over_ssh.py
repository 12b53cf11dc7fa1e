"""The control channel over SSH: its round trip, and how long a campaign on five nodes takes to its first tuple.

    .venv/bin/python benchmarks/control/over_ssh.py [--starts N]

The nodes are sshds of this machine on 127.0.0.x. A round trip is a heartbeat of a node's keeper and its answer, beside
one line through `ssh NODE cat` by OpenSSH itself, and one through a pipe to `cat`. A start is `millrace run` as a
process, from its launch until the sources are told when to begin.
CPU time is that of the whole campaign, whose run lasts a second and a half; where others load the machine, it tells
more than the clock.
"""

import argparse
import ast
import asyncio
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))

import psutil
from sshd import Lab, lab

from controller.ssh.connection import Connection
from controller.ssh.node_lease import NodeLease
from controller.ssh.settings import arguments_of, settings_of

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
        connection = Connection(nodes.host("n1"), threads, settings_of(nodes.host("n1")))
        lease = NodeLease(connection, f"campaign-{'0' * 32}", "a benchmark")
        found = []
        await lease.open()
        for _ in range(ROUND_TRIPS):
            begun = time.perf_counter()
            await lease.request("beat")
            found.append(time.perf_counter() - begun)
        await lease.close()
        await connection.close()
    return found


BEFORE_TUPLES = ("starting agents", "metering without workers", "starting workers")
"""Stages of a run whose time is time without tuples."""

TIMED = """\
import sys, time
from functools import wraps

import click

from millrace.__main__ import main
from campaign.commands import run

stages = {"Python, the agenda": time.time()}


def timed(where, name, stage):
    work = getattr(where, name)

    @wraps(work)
    def noting(*given, **named):
        stages.setdefault(stage, time.time())
        return work(*given, **named)

    setattr(where, name, noting)


def conduct(settings, no_report, **given):
    import campaign.runner.open_campaign
    from inventory import ansible_hosts

    timed(ansible_hosts, "listing", "Ansible reads the inventory, the campaign's modules are loaded")
    timed(campaign.runner.open_campaign, "plan_of", "plan, ssh -G of every node")
    load = run._load_the_rest

    def load_the_rest():
        load()
        import controller.ssh.backend

        timed(controller.ssh.backend.SshBackend, "__aenter__", "every node: login, keeper")
        timed(campaign.runner.run_campaign, "prepared", "inputs, results folder")

    run._load_the_rest = load_the_rest
    status, _ = run.run_campaign(settings, **given)
    sys.stderr.write("\\n" + repr(stages))
    return status


run.run_command.callback = click.pass_obj(conduct)
main()
"""
"""`millrace run` without its report, which says on standard error when its stages began."""


class Start(NamedTuple):
    """One start: seconds to the first tuple, those of each stage, and CPU seconds of the campaign by who used them."""

    seconds: float
    stages: Mapping[str, float]
    cpu: Mapping[str, float]


def start(nodes: Lab, folder: Path) -> Start:
    (folder / "agenda.json").write_text(json.dumps({**AGENDA, "inventory": str(nodes.inventory)}))
    before_s = on_nodes(nodes)
    begun = time.time()
    with (folder / "errors").open("w+b") as errors:
        controller = subprocess.Popen(
            [sys.executable, "-P", "-c", TIMED, "run", "agenda.json"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        _pid, status, used = os.wait4(controller.pid, 0)
        errors.seek(0)
        said = errors.read().decode()
    if status:
        sys.exit(said)
    (path,) = (folder / "results" / "start").glob("2*/runs/*/run.json")
    times = json.loads(path.read_text())["times"]
    ready, first = (datetime.fromisoformat(times[key]).timestamp() for key in ("created_utc", "started_utc"))
    subprocess.run(["rm", "-r", folder / "results"], check=True)
    began = {**ast.literal_eval(said.rpartition("\n")[2]), "": ready}
    names, moments = [*began][:-1], [begun, *[*began.values()][1:]]
    stages = {name: until - since for name, (since, until) in zip(names, pairwise(moments), strict=True)}
    stages |= {name: times["stages_s"][name] for name in BEFORE_TUPLES}
    cpu = {"controller, Ansible, ssh": used.ru_utime + used.ru_stime, "nodes": on_nodes(nodes) - before_s}
    return Start(first - begun, stages, cpu)


def on_nodes(nodes: Lab) -> float:
    """CPU seconds of all that sshds have started and that has ended."""
    times = [psutil.Process(node.processes()[0].pid).cpu_times() for node in nodes.nodes.values()]
    return sum(each.children_user + each.children_system for each in times)


def spread(figures: Sequence[float]) -> str:
    return f"median {statistics.median(figures):.2f}, {min(figures):.2f} to {max(figures):.2f}"


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
        print(f"launch to first tuple, 5 nodes, {starts} starts: {spread([each.seconds for each in measured])} s")
        for stage in measured[0].stages:
            print(f"  {stage:<64} {spread([each.stages[stage] for each in measured])} s")
        print("CPU time of the whole campaign")
        for who in measured[0].cpu:
            print(f"  {who:<64} {spread([each.cpu[who] for each in measured])} s")
        print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()

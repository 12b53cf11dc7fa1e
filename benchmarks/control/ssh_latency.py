"""Measure the round trip of the control channel over SSH, and the time to first tuple of a campaign on five nodes.

    .venv/bin/python benchmarks/control/ssh_latency.py [--starts N]

The nodes are sshds of this machine on 127.0.0.x. A round trip is a heartbeat of a node's lease and its reply. Its peers
are one line through OpenSSH's `ssh NODE cat`, and one through a pipe to `cat`. A start is a `millrace run` process,
from its launch until the sources get their start time. CPU time is that of the whole campaign, whose run lasts a
second and a half; on a busy machine it is more reliable than wall time.
"""

import argparse
import ast
import asyncio
import json
import os
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
from controller.ssh.settings import arguments_of, ssh_settings

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


def print_row(name: str, seconds: Sequence[float]) -> None:
    """Print the median and the 99th percentile."""
    ordered = sorted(seconds)
    p99 = ordered[int(0.99 * len(ordered))]
    print(f"{name:<52} median {statistics.median(ordered) * 1e6:7.0f} us   p99 {p99 * 1e6:7.0f} us")


def cat_round_trips(command: Sequence[str]) -> list[float]:
    """Return the seconds of each line through a `cat` command."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as cat:
        assert cat.stdin is not None
        assert cat.stdout is not None
        seconds = []
        for _ in range(ROUND_TRIPS + 1):
            begin = time.perf_counter()
            cat.stdin.write(LINE)
            assert cat.stdout.read(len(LINE)) == LINE
            seconds.append(time.perf_counter() - begin)
        cat.stdin.close()
    return seconds[1:]


async def heartbeat_round_trips(nodes: Lab) -> list[float]:
    """Return the seconds of each heartbeat."""
    with ThreadPoolExecutor() as threads:
        connection = Connection(nodes.host("n1"), threads, ssh_settings(nodes.host("n1")))
        lease = NodeLease(connection, f"campaign-{'0' * 32}", "a benchmark")
        seconds = []
        await lease.open()
        for _ in range(ROUND_TRIPS):
            begin = time.perf_counter()
            await lease.request("beat")
            seconds.append(time.perf_counter() - begin)
        await lease.close()
        await connection.close()
    return seconds


STAGES_BEFORE_TUPLES = ("starting agents", "metering without workers", "starting workers")
"""Stages of a run that end before its first tuple."""

RUN_WITH_STAGES = """\
import sys, time
from functools import wraps

import click

from millrace.__main__ import main
from campaign.commands import run

stages = {"Python, the agenda": time.time()}


def record_begin(owner, name, stage):
    function = getattr(owner, name)

    @wraps(function)
    def wrapper(*args, **kwargs):
        stages.setdefault(stage, time.time())
        return function(*args, **kwargs)

    setattr(owner, name, wrapper)


def run_without_report(settings, no_report, **options):
    import campaign.runner.open_campaign
    from inventory import ansible_hosts

    record_begin(ansible_hosts, "listing", "Ansible reads the inventory, the campaign's modules are loaded")
    record_begin(campaign.runner.open_campaign, "campaign_plan", "plan, ssh -G of every node")
    load = run._load_the_rest

    def load_the_rest():
        load()
        import controller.ssh.backend

        record_begin(controller.ssh.backend.SshBackend, "__aenter__", "every node: login, lease")
        record_begin(campaign.runner.run_campaign, "prepared", "inputs, results folder")

    run._load_the_rest = load_the_rest
    status, _ = run.run_campaign(settings, **options)
    sys.stderr.write("\\n" + repr(stages))
    return status


run.run_command.callback = click.pass_obj(run_without_report)
main()
"""
"""`millrace run` without its report; writes the begin of its stages to standard error."""


class Start(NamedTuple):
    """Seconds to the first tuple, seconds per stage, and CPU seconds of the campaign per group of processes."""

    seconds: float
    stages: Mapping[str, float]
    cpu: Mapping[str, float]


def measure_start(nodes: Lab, folder: Path) -> Start:
    """Run the campaign once; return its times."""
    (folder / "agenda.json").write_text(json.dumps({**AGENDA, "inventory": str(nodes.inventory)}))
    nodes_before_s = node_cpu_s(nodes)
    launch = time.time()
    with (folder / "errors").open("w+b") as errors:
        controller = subprocess.Popen(
            [sys.executable, "-P", "-c", RUN_WITH_STAGES, "run", "agenda.json"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        _pid, status, used = os.wait4(controller.pid, 0)
        errors.seek(0)
        stderr = errors.read().decode()
    if status:
        sys.exit(stderr)
    (path,) = (folder / "results" / "start").glob("2*/runs/*/run.json")
    times = json.loads(path.read_text())["times"]
    ready, first = (datetime.fromisoformat(times[key]).timestamp() for key in ("created_utc", "started_utc"))
    subprocess.run(["rm", "-r", folder / "results"], check=True)
    begins = {**ast.literal_eval(stderr.rpartition("\n")[2]), "": ready}
    names, moments = [*begins][:-1], [launch, *[*begins.values()][1:]]
    stages = {name: until - since for name, (since, until) in zip(names, pairwise(moments), strict=True)}
    stages |= {name: times["stages_s"][name] for name in STAGES_BEFORE_TUPLES}
    cpu = {"controller, Ansible, ssh": used.ru_utime + used.ru_stime, "nodes": node_cpu_s(nodes) - nodes_before_s}
    return Start(first - launch, stages, cpu)


def node_cpu_s(nodes: Lab) -> float:
    """Return the CPU seconds of all processes that the sshds started and that have ended."""
    times = [psutil.Process(node.processes()[0].pid).cpu_times() for node in nodes.nodes.values()]
    return sum(each.children_user + each.children_system for each in times)


def spread(figures: Sequence[float]) -> str:
    """Return median and range as text."""
    return f"median {statistics.median(figures):.2f}, {min(figures):.2f} to {max(figures):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=5, help="number of campaigns (default: 5)")
    starts = parser.parse_args().starts
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder, lab(Path(folder), NODES) as nodes:
        print_row("a line through a pipe to cat", cat_round_trips(["cat"]))
        ssh = ["ssh", *arguments_of(nodes.host("n1")), "cat"]
        print_row("a line through ssh NODE cat", cat_round_trips(ssh))
        print_row("a heartbeat and its reply over the control channel", asyncio.run(heartbeat_round_trips(nodes)))
        results = [measure_start(nodes, Path(folder)) for _ in range(starts)]
        print(f"launch to first tuple, 5 nodes, {starts} starts: {spread([each.seconds for each in results])} s")
        for stage in results[0].stages:
            print(f"  {stage:<64} {spread([each.stages[stage] for each in results])} s")
        print("CPU time of the whole campaign")
        for processes in results[0].cpu:
            print(f"  {processes:<64} {spread([each.cpu[processes] for each in results])} s")
        print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()

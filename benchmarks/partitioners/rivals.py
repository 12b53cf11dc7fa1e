"""Peers beside our schedulers: METIS, KaMinPar, Mt-KaHyPar, CP-SAT in an environment of their own, and greedy growth.

METIS balances within a tolerance and knows no hard limits; so its tolerance and number of parts are tuned, and its
answers are made to fit (`legal`). What our own refinement makes of them (`refined`) counts apart.
"""

import json
import subprocess
import sys
import venv
from collections.abc import Iterator
from heapq import heapify, heappop
from pathlib import Path

from scheduler.partitioning.counts import counts_of
from scheduler.partitioning.instance import Instance
from scheduler.partitioning.large_neighbourhood import search_large
from scheduler.partitioning.rows import listed
from scheduler.partitioning.solving import SMALL, looks_for
from scheduler.partitioning.tabu import PATIENCE, Effort, improve

HERE = Path(__file__).parent
PACKAGES = ("pymetis==2025.2.2", "ortools==9.15.6755", "kaminpar==3.7.3", "mtkahypar==1.7")


def interpreter() -> Path:
    """The Python of the peers' environment, made if need be."""
    folder = HERE / ".peers"
    python, complete = folder / "bin" / "python", folder / "installed.txt"
    if not complete.exists() or complete.read_text().split() != [*PACKAGES]:
        print(f"installing {', '.join(PACKAGES)} into their own environment", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        complete.write_text("\n".join(PACKAGES))  # after the packages: an installation may be interrupted
    return python


def ask(tasks: list[dict], seconds: float | None = None) -> Iterator[dict]:
    """What the peers answer, task by task; large graphs are handed over one at a time, for `seconds` at most."""
    some = len(tasks) if len(tasks[0]["xadj"]) <= 10_000 else 1
    for at in range(0, len(tasks), some):
        done = subprocess.run(
            [interpreter(), HERE / "peers.py"],
            input=json.dumps(tasks[at : at + some]),
            capture_output=True,
            text=True,
            check=True,
            timeout=seconds,
        )
        yield from json.loads(done.stdout)


def posed(instance: Instance) -> tuple[dict, list[int]]:
    """The graph for a peer, and the nodes, the largest first, that its parts stand for."""
    graph = listed(instance)
    order = sorted(range(len(instance.capacity)), key=lambda node: -instance.capacity[node])
    caps = [instance.capacity[node] for node in order]
    return {"xadj": list(graph.xadj), "adj": list(graph.adj), "wgt": list(graph.wgt), "cap": caps}, order


def metis_tasks(task: dict) -> list[dict]:
    """METIS with several tolerances (per mille) and numbers of parts; fewer for large graphs."""
    total = len(task["xadj"]) - 1
    slacks = (1.0, 1.02, 1.1) if total <= 1_000 else (1.02, 1.15) if total <= 10_000 else (1.02,)
    tolerances = (1, 5, 20, 50, 100, 200) if total <= 1_000 else (1, 30, 200)
    tasks = []
    for slack in slacks:
        held = count = 0
        while count < len(task["cap"]) and held < slack * total:
            held += task["cap"][count]
            count += 1
        tasks.extend(
            {**task, "peer": "metis", "cap": task["cap"][:count], "recursive": recursive, "ufactor": tolerance}
            for recursive in (True, False)
            for tolerance in tolerances
        )
    return tasks


def legal(task: dict, caps: list[int], part: list[int]) -> list[int] | None:
    """Vertices leave overfull parts, those that lose least first, for the part with room that they gain most in."""
    part = list(part)
    load = [0] * len(caps)
    for p in part:
        load[p] += 1

    def rates(v: int) -> dict[int, int]:
        found: dict[int, int] = {}
        for e in range(task["xadj"][v], task["xadj"][v + 1]):
            p = part[task["adj"][e]]
            found[p] = found.get(p, 0) + task["wgt"][e]
        return found

    over = [(rates(v).get(p, 0), v) for v, p in enumerate(part) if load[p] > caps[p]]
    heapify(over)
    while over:
        _, v = heappop(over)
        if load[part[v]] <= caps[part[v]]:
            continue
        near = rates(v)
        target = max((p for p in range(len(caps)) if load[p] < caps[p]), key=lambda p: near.get(p, 0), default=-1)
        if target < 0:
            return None
        load[part[v]] -= 1
        load[target] += 1
        part[v] = target
    return part


def refined(instance: Instance, order: list[int], part: list[int]) -> list[int] | None:
    """What `local-search` makes of such a placement instead of its own starts, with its usual effort."""
    effort = Effort(looks_for(instance), lambda: False)
    nodes = [order[p] for p in part]
    if instance.executors <= SMALL:
        return improve(counts_of(instance, nodes), effort, 0, PATIENCE, 0).node_of()
    return search_large(instance, effort, start=nodes)

"""Client of the peers METIS, KaMinPar, Mt-KaHyPar and CP-SAT, which run in an environment of their own.

METIS balances within a tolerance and has no hard capacities. Its tolerance and number of parts are therefore varied,
and its answers are repaired (`repair_capacities`). Answers that our refinement improves (`refine`) count separately.
"""

import json
import subprocess
import sys
import venv
from collections.abc import Iterator
from heapq import heapify, heappop
from pathlib import Path
from typing import Any

from scheduler.partitioning.counts import counts_of
from scheduler.partitioning.instance import Instance
from scheduler.partitioning.large_neighbourhood import search_large
from scheduler.partitioning.rows import listed_pairs
from scheduler.partitioning.solving import SMALL, looks_for
from scheduler.partitioning.tabu import PATIENCE, Effort, improve

HERE = Path(__file__).parent
PACKAGES = ("pymetis==2025.2.2", "ortools==9.15.6755", "kaminpar==3.7.3", "mtkahypar==1.7")

Task = dict[str, Any]
"""A graph for a peer, with the peer's settings."""


def peer_python() -> Path:
    """Return the Python of the peers' environment; create the environment first if it is missing."""
    folder = HERE / ".peers"
    python, complete = folder / "bin" / "python", folder / "installed.txt"
    if not complete.exists() or complete.read_text().split() != [*PACKAGES]:
        print(f"installing {', '.join(PACKAGES)} into an environment of their own", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        complete.write_text("\n".join(PACKAGES))  # last, since the installation can be interrupted
    return python


def solve_tasks(tasks: list[Task], seconds: float | None = None) -> Iterator[Any]:
    """Yield the peers' answers in the order of tasks: a dictionary, or a list with one per seed.

    A graph of more than 10,000 vertices gets a process of its own. `seconds` is the limit per process.

    Raises:
        TimeoutExpired: a process exceeds the limit.
    """
    batch = len(tasks) if len(tasks[0]["xadj"]) <= 10_000 else 1
    for first in range(0, len(tasks), batch):
        done = subprocess.run(
            [peer_python(), HERE / "peer_process.py"],
            input=json.dumps(tasks[first : first + batch]),
            capture_output=True,
            text=True,
            check=True,
            timeout=seconds,
        )
        yield from json.loads(done.stdout)


def make_task(instance: Instance) -> tuple[Task, list[int]]:
    """Return the graph for a peer, and the node of each part; the largest node is first."""
    graph = listed_pairs(instance)
    order = sorted(range(len(instance.capacity)), key=lambda node: -instance.capacity[node])
    caps = [instance.capacity[node] for node in order]
    return {"xadj": list(graph.xadj), "adj": list(graph.adj), "wgt": list(graph.wgt), "cap": caps}, order


def metis_tasks(task: Task) -> list[Task]:
    """Return METIS tasks with several tolerances (per mille) and numbers of parts; fewer for large graphs."""
    total = len(task["xadj"]) - 1
    slacks = (1.0, 1.02, 1.1) if total <= 1_000 else (1.02, 1.15) if total <= 10_000 else (1.02,)
    tolerances = (1, 5, 20, 50, 100, 200) if total <= 1_000 else (1, 30, 200)
    tasks: list[Task] = []
    for slack in slacks:
        capacity = count = 0
        while count < len(task["cap"]) and capacity < slack * total:
            capacity += task["cap"][count]
            count += 1
        tasks.extend(
            {**task, "peer": "metis", "cap": task["cap"][:count], "recursive": recursive, "ufactor": tolerance}
            for recursive in (True, False)
            for tolerance in tolerances
        )
    return tasks


def repair_capacities(task: Task, caps: list[int], part: list[int]) -> list[int] | None:
    """Move vertices out of parts that exceed their capacity; return None if no part has room.

    The vertex with the lowest rate to its own part moves first, to the part with room to which its rate is highest.
    """
    part = list(part)
    load = [0] * len(caps)
    for p in part:
        load[p] += 1

    def rates_by_part(v: int) -> dict[int, int]:
        rates: dict[int, int] = {}
        for e in range(task["xadj"][v], task["xadj"][v + 1]):
            p = part[task["adj"][e]]
            rates[p] = rates.get(p, 0) + task["wgt"][e]
        return rates

    movable = [(rates_by_part(v).get(p, 0), v) for v, p in enumerate(part) if load[p] > caps[p]]
    heapify(movable)
    while movable:
        _, v = heappop(movable)
        if load[part[v]] <= caps[part[v]]:
            continue
        rates = rates_by_part(v)
        target = max((p for p in range(len(caps)) if load[p] < caps[p]), key=lambda p: rates.get(p, 0), default=-1)
        if target < 0:
            return None
        load[part[v]] -= 1
        load[target] += 1
        part[v] = target
    return part


def refine(instance: Instance, order: list[int], part: list[int]) -> list[int] | None:
    """Refine a placement as `local-search` refines its own starts, with its usual effort."""
    effort = Effort(looks_for(instance), lambda: False)
    nodes = [order[p] for p in part]
    if instance.executors <= SMALL:
        return improve(counts_of(instance, nodes), effort, 0, PATIENCE, 0).node_of()
    return search_large(instance, effort, start=nodes)

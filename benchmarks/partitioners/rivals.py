"""Peers beside our schedulers: METIS and CP-SAT in an environment of their own, and greedy growth.

METIS balances within a tolerance and knows no hard limits; so its answers are made to fit (`legal`) and refined
by moves and swaps until nothing helps (`polish`), and its tolerance and number of parts are tuned.
"""

import json
import subprocess
import sys
import venv
from heapq import heapify, heappop
from pathlib import Path

from scheduler.graph.instance import Instance
from scheduler.graph.rows import listed

HERE = Path(__file__).parent
PACKAGES = ("pymetis==2025.2.2", "ortools==9.15.6755")


def interpreter() -> Path:
    """The Python of the peers' environment, made if need be."""
    folder = HERE / ".peers"
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"installing {', '.join(PACKAGES)} into their own environment", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return python


def ask(tasks: list[dict]) -> list[dict]:
    """What the peers answer, task by task."""
    done = subprocess.run(
        [interpreter(), HERE / "peers.py"], input=json.dumps(tasks), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def posed(instance: Instance) -> tuple[dict, list[int]]:
    """The graph for a peer, and the nodes, the largest first, that its parts stand for."""
    graph = listed(instance)
    order = sorted(range(len(instance.capacity)), key=lambda node: -instance.capacity[node])
    caps = [instance.capacity[node] for node in order]
    return {"xadj": graph.xadj, "adj": graph.adj, "wgt": graph.wgt, "cap": caps}, order


def metis_tasks(task: dict, quick: bool) -> list[dict]:
    """METIS with several tolerances (per mille) and numbers of parts."""
    total = len(task["xadj"]) - 1
    tasks = []
    for slack in (1.02,) if quick else (1.0, 1.02, 1.1):
        held = count = 0
        while count < len(task["cap"]) and held < slack * total:
            held += task["cap"][count]
            count += 1
        tasks.extend(
            {**task, "peer": "metis", "cap": task["cap"][:count], "recursive": recursive, "ufactor": ufactor}
            for recursive in (True, False)
            for ufactor in ((1, 30) if quick else (1, 5, 20, 50))
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


def polish(task: dict, caps: list[int], part: list[int], rounds: int = 8) -> None:
    """Moves and swaps of neighbours that lower the cut, until none does."""
    xadj, adj, wgt = task["xadj"], task["adj"], task["wgt"]
    load = [0] * len(caps)
    members: list[set[int]] = [set() for _ in caps]
    for v, p in enumerate(part):
        load[p] += 1
        members[p].add(v)

    def rates(v: int) -> dict[int, int]:
        found: dict[int, int] = {}
        for e in range(xadj[v], xadj[v + 1]):
            found[part[adj[e]]] = found.get(part[adj[e]], 0) + wgt[e]
        return found

    def move(v: int, to: int) -> None:
        members[part[v]].remove(v)
        load[part[v]] -= 1
        part[v] = to
        members[to].add(v)
        load[to] += 1

    for _ in range(rounds):
        changed = False
        for v in range(len(part)):
            near, home = rates(v), part[v]
            for p, rate in sorted(near.items(), key=lambda item: -item[1]):
                gain = rate - near.get(home, 0)
                if p == home or gain <= 0:
                    continue
                if load[p] < caps[p]:
                    move(v, p)
                    changed = True
                    break
                best, partner = 0, -1
                for u in sorted(members[p]):
                    theirs = rates(u)
                    between = sum(wgt[e] for e in range(xadj[u], xadj[u + 1]) if adj[e] == v)
                    total = gain + theirs.get(home, 0) - theirs.get(p, 0) - 2 * between
                    if total > best:
                        best, partner = total, u
                if partner >= 0:
                    move(partner, home)
                    move(v, p)
                    changed = True
                    break
        if not changed:
            return

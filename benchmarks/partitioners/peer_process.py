"""Solve partitioning problems with METIS, KaMinPar, Mt-KaHyPar and CP-SAT, in an environment of their own.

`peer_client.py` starts this program.

Reads a JSON list of tasks from standard input. Writes a JSON list of answers to standard output: the part of each
vertex (or null) and CPU seconds. KaMinPar and Mt-KaHyPar run on one thread and return a list of answers, one per seed.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

Task = dict[str, Any]
Answer = dict[str, Any]


def metis(task: Task) -> Answer:
    import pymetis

    graph = pymetis.CSRAdjacency(np.array(task["xadj"]), np.array(task["adj"]))
    total = sum(task["cap"])
    start = process_time()
    try:
        _, part = pymetis.part_graph(
            len(task["cap"]),
            adjacency=graph,
            eweights=np.array(task["wgt"]),
            tpwgts=[capacity / total for capacity in task["cap"]],
            recursive=task["recursive"],
            options=pymetis.Options(ufactor=task["ufactor"], seed=1),
        )
    except RuntimeError as error:  # METIS fails on some combinations of settings
        print(f"METIS: {error}", file=sys.stderr)
        part = None
    return {"part": part and list(map(int, part)), "seconds": process_time() - start}


def cp_sat(task: Task) -> Answer:
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    nodes, vertices = range(len(task["cap"])), range(len(task["xadj"]) - 1)
    is_on = [[model.new_bool_var("") for _ in nodes] for _ in vertices]
    for row in is_on:
        model.add_exactly_one(row)
    for node in nodes:
        model.add(sum(is_on[v][node] for v in vertices) <= task["cap"][node])
    inner_weights = []
    for v in vertices:
        for e in range(task["xadj"][v], task["xadj"][v + 1]):
            if (u := task["adj"][e]) > v:
                for node in nodes:
                    both = model.new_bool_var("")
                    model.add_implication(both, is_on[v][node])
                    model.add_implication(both, is_on[u][node])
                    inner_weights.append(task["wgt"][e] * both)
    model.maximize(sum(inner_weights))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = task["seconds"]
    solver.parameters.num_workers = 2
    start = perf_counter()
    status = solver.solve(model)
    seconds = perf_counter() - start
    solved = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    part = [next(u for u in nodes if solver.value(row[u])) for row in is_on] if solved else None
    return {"part": part, "seconds": seconds, "proven": status == cp_model.OPTIMAL}


def kaminpar(task: Task) -> list[Answer]:
    import kaminpar

    rows = (range(a, b) for a, b in zip(task["xadj"], task["xadj"][1:], strict=False))
    lines = [" ".join(f"{task['adj'][e] + 1} {task['wgt'][e]}" for e in row) for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "graph.metis"
        file.write_text("\n".join([f"{len(lines)} {len(task['adj']) // 2} 1", *lines]) + "\n")
        graph = kaminpar.load_graph(str(file), kaminpar.GraphFileFormat.METIS)
    answers = []
    for seed in range(task["seeds"]):
        partitioner = kaminpar.KaMinPar(num_threads=1, ctx=kaminpar.context_by_name(task["preset"]))
        kaminpar.reseed(seed)
        start = process_time()
        part = partitioner.compute_partition(graph, max_block_weights=task["cap"])
        answers.append({"part": list(map(int, part)), "seconds": process_time() - start})
    return answers


def mt_kahypar(task: Task, target: Sequence[tuple[int, int, int]] = ()) -> list[Answer]:
    """Partition; with the links (node, node, cost) of a target graph, map onto that graph."""
    import mtkahypar

    library = mtkahypar.initialize(1)
    n, adj = len(task["xadj"]) - 1, task["adj"]
    entries = [(v, e) for v in range(n) for e in range(task["xadj"][v], task["xadj"][v + 1]) if adj[e] > v]
    pairs, rates = [(v, adj[e]) for v, e in entries], [task["wgt"][e] for _, e in entries]
    answers = []
    for seed in range(task["seeds"]):
        mtkahypar.set_seed(seed)
        context = library.context_from_preset(getattr(mtkahypar.PresetType, task["preset"]))
        context.set_partitioning_parameters(len(task["cap"]), 0.03, mtkahypar.Objective.CUT)
        context.set_individual_target_block_weights(task["cap"])
        context.logging = False
        graph = library.create_graph(context, n, len(pairs), pairs, [1] * n, rates)
        links, costs = [(a, b) for a, b, _ in target], [cost for _, _, cost in target]
        nodes = target and library.create_target_graph(context, len(task["cap"]), len(links), links, costs)
        start = process_time()
        partitioned = graph.map_onto_graph(nodes, context) if target else graph.partition(context)
        seconds = process_time() - start
        answers.append({"part": [partitioned.block_id(v) for v in range(n)], "seconds": seconds})
    return answers


PEERS: dict[str, Callable[[Task], Answer | list[Answer]]] = {
    "metis": metis,
    "cp-sat": cp_sat,
    "kaminpar": kaminpar,
    "mt-kahypar": mt_kahypar,
    "mt-kahypar-target": lambda task: mt_kahypar(task, task["target"]),
}
json.dump([PEERS[task["peer"]](task) for task in json.load(sys.stdin)], sys.stdout)

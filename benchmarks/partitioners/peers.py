"""METIS and CP-SAT on partitioning problems; runs in an environment of its own, called by `benchmarks/schedulers.py`.

Reads one JSON document from standard input, writes one to standard output: parts per vertex (or null) and CPU seconds.
"""

import json
import sys
from time import perf_counter, process_time

import numpy as np


def metis(task):
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
    except RuntimeError as fault:  # some combinations make it give up
        print(f"METIS: {fault}", file=sys.stderr)
        part = None
    return {"part": part and list(map(int, part)), "seconds": process_time() - start}


def cp_sat(task):
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    nodes, vertices = range(len(task["cap"])), range(len(task["xadj"]) - 1)
    at = [[model.new_bool_var("") for _ in nodes] for _ in vertices]
    for row in at:
        model.add_exactly_one(row)
    for node in nodes:
        model.add(sum(at[v][node] for v in vertices) <= task["cap"][node])
    kept = []
    for v in vertices:
        for e in range(task["xadj"][v], task["xadj"][v + 1]):
            if (u := task["adj"][e]) > v:
                for node in nodes:
                    both = model.new_bool_var("")
                    model.add_implication(both, at[v][node])
                    model.add_implication(both, at[u][node])
                    kept.append(task["wgt"][e] * both)
    model.maximize(sum(kept))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = task["seconds"]
    solver.parameters.num_workers = 2
    start = perf_counter()
    status = solver.solve(model)
    seconds = perf_counter() - start
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    part = [next(u for u in nodes if solver.value(row[u])) for row in at] if found else None
    return {"part": part, "seconds": seconds, "proven": status == cp_model.OPTIMAL}


PEERS = {"metis": metis, "cp-sat": cp_sat}
json.dump([PEERS[task["peer"]](task) for task in json.load(sys.stdin)], sys.stdout)

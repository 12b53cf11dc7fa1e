"""Storm's answers to scheduling rounds, and the part of them that is compared with Millrace's.

`even`, `default` and the `resource-aware` of Storm 1.1 are compared slot for slot. With the others, Storm's hash maps
decide which slot of a node, or which executor of a component, is taken: workers are compared by node or host, and by
executors or components.
"""

import json
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storm_round import StormRound, port_of, tasks

from inventory.plugins import plain_parameters
from scheduler.problem import Plan
from scheduler.registry import make_scheduler
from workloads.topology import Topology

JAVA = Path(__file__).parent / "storm_oracle"
"""Sources of the driver; subfolders are for one version of Storm each."""

Row = tuple[int, str, int]
"""Task, node and port of an executor."""


@dataclass(frozen=True)
class StormAnswer:
    """Storm's assignments by topology, and its status texts."""

    assignments: dict[str, list[Row]]
    status: dict[str, str]

    def lost_an_executor(self, round_: StormRound) -> bool:
        """Return whether Storm reports a topology as scheduled although an executor of it has no slot.

        Storm 2.8, `BaseResourceAwareStrategy.scheduleExecutorsOnNodes`, last statement, and the same in
        `RoundRobinResourceAwareStrategy`: a search that fails at the last executor counts as complete.
        """
        return any(
            self.status.get(topology.id, "").startswith("Running - Fully Scheduled")
            and len(self.assignments.get(topology.id, [])) < len(topology.executors)
            for topology in round_.problem.topologies
        )


def query_storm(rounds: Sequence[StormRound], command: Sequence[str]) -> list[StormAnswer]:
    """Return Storm's answers; `command` starts the oracle."""
    lines = "".join(json.dumps(round_.as_json()) + "\n" for round_ in rounds)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(rounds)
    return [
        StormAnswer({name: [tuple(row) for row in rows] for name, rows in one["assignments"].items()}, one["status"])
        for one in found
    ]


def our_plan(round_: StormRound) -> Plan:
    return make_scheduler(round_.scheduler, plain_parameters(round_.params, "round")).place(round_.problem)


def rows_of(round_: StormRound, plan: Plan, topology: Topology) -> list[Row]:
    """Return our assignments of one topology in the form of Storm's."""
    number = tasks(topology)
    by_id = round_.problem.cluster.by_id
    return [
        (number[executor], slot.node, port_of(by_id[slot.node], slot.index))
        for executor, slot in plan.placements[topology.id].assignments.items()
    ]


def comparable(round_: StormRound, topology: Topology, rows: Sequence[Row]) -> Any:
    """Return the part of a topology's assignments that the definition of its scheduler determines."""
    workers: dict[tuple[str, int], list[int]] = defaultdict(list)
    for task, node, port in rows:
        workers[node, port].append(task)
    if round_.scheduler in ("multitenant", "resource-aware") and round_.params.get("engine") != "1.1":
        component = {task: executor.component for executor, task in tasks(topology).items()}
        return sorted((node, sorted(map(component.__getitem__, found))) for (node, _), found in workers.items())
    if topology.id in round_.params.get("machines", {}):
        by_id = round_.problem.cluster.by_id
        return sorted(by_id[node].machine for node, _ in workers)
    return sorted(rows)

"""Comparison with Storm's own schedulers: placements of random rounds are equal, or the difference is listed.

`--oracle N` sets the number of rounds per scheduler; round 0, 1, ... is the same one everywhere.
"""

import functools
import json
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from package_install import skipping_without_jars
from storm_rounds import (
    STRATEGIES,
    StormRound,
    default,
    even,
    isolation,
    multitenant,
    port_of,
    resource_aware,
    resource_aware_1_1,
    tasks,
)

from engines.installation import LOCK, install
from inventory.plugins import plain_parameters
from scheduler.problem import Plan
from scheduler.registry import make_scheduler
from workloads.topology import Topology

JAVA = Path(__file__).parents[1] / "support" / "storm_oracle"
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


KINDS: Mapping[str, Any] = {
    "even": even,
    "default": default,
    "isolation": isolation,
    "multitenant": multitenant,
    **{f"resource-aware {name}": (lambda draw, name=name: resource_aware(draw, name)) for name in STRATEGIES},
    "resource-aware 1.1": resource_aware_1_1,
}
"""Scheduler, with its strategy or engine -> generator of random rounds."""


def round_of(kind: str, seed: int) -> StormRound:
    """Return round number `seed` of a scheduler: the same one on every machine."""
    made: StormRound = KINDS[kind](Random(f"{kind} {seed}"))  # noqa: S311 # the same draw everywhere, not a secret
    return made


pytestmark = pytest.mark.storm

Command = list[str]

COUNTED = "after a step back, Storm skips as many slots of the newly sorted nodes as it had tried of the earlier ones \
(`BaseResourceAwareStrategy.scheduleExecutorsOnNodes`, `progressIdxForExec`); ours continues after the slot itself"

HASHED = "which of the workers started in this round are released depends on Storm's hash map of slots \
(`DefaultScheduler.badSlots`)"

COMPLETE = "ours leaves complete topologies in users' pools unchanged (`docs/schedulers/multitenant.md`)"

OVERFULL = "a pool with more nodes than its limit: the difference is negative, and Storm takes as many nodes from the \
user's other topologies for one that needs none (`IsolatedPool.getNodesForIsolatedTop`, `nodesNeededFromOthers`)"

UNSEARCHED = "where executors cannot all fit into free slots, ours does not search, and evicts for all of them; Storm \
searches up to its limit, and evicts for those without a place at that moment"

DIFFERENT: Mapping[str, Mapping[int, str]] = {
    "default": {349: HASHED},
    "multitenant": {289: OVERFULL, 919: COMPLETE},
    "resource-aware generic": {791: COUNTED},
    "resource-aware default-old": {392: COUNTED, 642: UNSEARCHED, 943: COUNTED},
}
"""Scheduler -> round below 1,000 in which placements differ although Storm lost no executor -> why."""


V1_JARS = LOCK.with_name("test_jars.toml")


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Command]:
    """Function that installs Storm `v1` or `v2`, compiles the driver, and returns the command that starts it."""

    @functools.cache
    def command(version: str) -> Command:
        with skipping_without_jars():
            engine = install("storm", print) if version == "v2" else install("storm-1.1", print, lock=V1_JARS)
        classes = tmp_path_factory.mktemp("oracle")
        sources = [str(source) for folder in (JAVA, JAVA / version) for source in sorted(folder.glob("*.java"))]
        subprocess.run(
            ["javac", "-nowarn", "-cp", engine.class_path, "-d", str(classes), *sources], check=True, timeout=200
        )
        shutil.copy(JAVA / "log4j2.xml", classes)
        return [
            "java",
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "--add-opens=java.base/java.util=ALL-UNNAMED",  # isolation's shuffle
            "-cp",
            f"{classes}:{engine.class_path}",
            "Oracle",
        ]

    return command


def differing(round_: StormRound, answer: StormAnswer) -> list[str]:
    """Return the topologies whose placements differ."""
    plan = our_plan(round_)
    return [
        topology.id
        for topology in round_.problem.topologies
        if comparable(round_, topology, rows_of(round_, plan, topology))
        != comparable(round_, topology, answer.assignments.get(topology.id, []))
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_placements_are_those_of_storm(
    kind: str, oracle: Callable[[str], Command], request: pytest.FixtureRequest
) -> None:
    seeds = range(request.config.getoption("oracle"))
    rounds = [round_of(kind, seed) for seed in seeds]
    answers = query_storm(rounds, oracle("v1" if kind == "resource-aware 1.1" else "v2"))
    assert sum(any(answer.assignments.values()) for answer in answers) > len(rounds) / 2
    lost = [answer.lost_an_executor(round_) for round_, answer in zip(rounds, answers, strict=True)]
    assert sum(lost) < len(rounds) / 3
    different = [seed for seed in seeds if not lost[seed] and differing(rounds[seed], answers[seed])]
    assert different == [seed for seed in sorted(DIFFERENT.get(kind, {})) if seed in seeds]

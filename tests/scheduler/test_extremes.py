"""Input at its limits: schedulers, cost and explanation work with it."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from problems import chain
from scheduling_rounds import repeated_round, traffic_of

from campaign.place.place import Round, place
from inventory.cluster import Cluster, Node, cluster_from_document
from inventory.documents import Document
from inventory.errors import InputError
from inventory.values import MOST
from scheduler.placement_file import to_json
from scheduler.problem import Problem
from scheduler.registry import computing_schedulers, make_scheduler
from workloads.topology import topology_of
from workloads.traffic import Traffic, load_traffic, traffic_from_document

PAIRS = [{"from": f"a[{i}]", "to": f"b[{j}]", "tuples_per_s": MOST} for i in range(3) for j in range(3)]
TOPOLOGY = {
    "id": "t",
    "components": [
        {"id": "a", "kind": "spout", "parallelism": 3, "cpu": MOST, "memory_mb": MOST},
        {"id": "b", "kind": "bolt", "parallelism": 3, "cpu": MOST, "inputs": [{"from": "a"}]},
    ],
}


def cluster(least: float) -> dict[str, Any]:
    hardware = {"slots": 2, "ghz": MOST, "flops_per_cycle": MOST, "ram_gb": MOST}
    return {"nodes": [{"id": f"n{at}", "cpu": least, "memory_mb": MOST, **hardware} for at in range(3)]}


@pytest.mark.parametrize("name", computing_schedulers())
@pytest.mark.parametrize("least", [5e-324, MOST])
def test_largest_loads_and_rates_are_placed_evaluated_and_explained(name: str, least: float) -> None:
    files = Round(
        cluster_from_document(Document("cluster", cluster(least))),
        [topology_of(Document("topology", TOPOLOGY))],
        traffic_from_document(Document("traffic", {"edges": PAIRS, "load": dict.fromkeys(["a[0]", "b[0]"], MOST)})),
        explain=True,
    )
    answer = place(make_scheduler(name), files).answer
    assert math.isfinite(answer.cost.inter_node_tuples_per_s or 0.0)
    assert math.isfinite(answer.cost.load_stddev or 0.0)
    assert json.loads(to_json(answer))["scheduler"] == name


def test_a_rate_above_the_limit_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "traffic.yml"
    file.write_text('edges:\n  - {from: "a[0]", to: "b[0]", tuples_per_s: 1.7e308}\n')
    with pytest.raises(
        InputError, match=r"traffic.yml:2: edges\[0\].tuples_per_s: got 1.7e308: expected a number <= 1"
    ):
        load_traffic(file)


NAMES = ("aniello-offline", "aniello-online", "t-storm", "d-storm", "p-scheduler", "matrix")

CLUSTERS = {
    "no slots": Cluster((Node(id="x", slots=0), Node(id="y", slots=0))),
    "nobody available": Cluster((Node(id="x", available=False),)),
    "no capacity": Cluster((Node(id="x", cpu=0.0, memory_mb=0.0), Node(id="y", cpu=0.0, memory_mb=0.0))),
    "executors count": Cluster((Node(id="x", capacity=1.0), Node(id="y", capacity=2.5))),
    "enormous": Cluster((Node(id="x", cpu=1e300, memory_mb=1e300), Node(id="y", cpu=1e-300))),
    "one slot": Cluster((Node(id="x", slots=1),)),
}

TRAFFICS = {
    "none": Traffic(),
    "with itself": traffic_of({"a[0] a[0]": 5}),
    "enormous": traffic_of(
        {"a[0] b[0]": 1.7e308, "a[1] b[1]": 1.7e308, "a[0] b[1]": 1e-300}, {"a[0]": 1e308, "b[0]": 1e308}
    ),
    "tiny": traffic_of({"a[0] b[0]": 5e-324}, {"a[0]": 5e-324}),
    "idle": traffic_of({"a[0] b[0]": 0}, dict.fromkeys(["a[0]", "a[1]", "b[0]", "b[1]", "b[2]"], 0.0)),
}


@pytest.mark.parametrize("traffic", TRAFFICS)
@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("name", NAMES)
def test_every_extreme_problem_gets_a_plan_that_can_be_repeated(name: str, cluster: str, traffic: str) -> None:
    scheduler = make_scheduler(name)
    problem = Problem(CLUSTERS[cluster], (chain(2, 3, workers=10**9),), TRAFFICS[traffic])
    plan = scheduler.place(problem)
    placement = plan.placements["t"]
    if cluster in ("no slots", "nobody available"):
        assert (placement.status, placement.assignments) == ("failed", {})
    elif name != "d-storm":  # the only one here with hard limits
        assert placement.status == "placed"
    following = scheduler.place(repeated_round(problem, plan))
    assert len(following.placements["t"].assignments) == len(placement.assignments)

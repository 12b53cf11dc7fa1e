"""Input at its limits: schedulers that use loads and rates return a plan and do not raise."""

import pytest
from problems import chain
from scheduling_rounds import repeated_round, traffic_of

from inventory.cluster import Cluster, Node
from scheduler.problem import Problem
from scheduler.registry import make_scheduler
from workloads.traffic import Traffic

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

"""Demands of executors in an agenda, and nodes whose cores are fractions of cores of this host."""

from typing import Any

import pytest

from campaign.agenda.agenda import agenda_of
from campaign.agenda.campaign_plan import CampaignPlan, campaign_plan
from inventory.cluster import Cluster, cluster_from_document
from inventory.documents import dump_json, parse_document
from inventory.errors import InputError
from inventory.reading import read_cluster
from scheduler.problem import Problem
from scheduler.toolkit.cost import Loads
from workloads.topology import Executor
from workloads.traffic import Traffic

PARAMS = {"workers": 2, "ackers": 0, "parallelism": {"spout": 1, "split": 2, "count": 2}}
CLUSTER = {"nodes": [{"id": f"n{k}", "cores": 1, "memory_mb": 1024} for k in (1, 2, 3)]}


def planned(workload: dict[str, Any], cluster: Any = CLUSTER, **keys: Any) -> CampaignPlan:
    entry = {"name": "wordcount", "params": PARAMS, "rate": {"kind": "constant", "tuples_per_s": 10}, **workload}
    agenda = {"name": "a", "workloads": [entry], "schedulers": ["resource-aware"], **keys}
    nodes = cluster_from_document(parse_document(dump_json(cluster), "c.yaml"))
    return campaign_plan(agenda_of(parse_document(dump_json(agenda), "a.yaml")), nodes)


def places(plan: CampaignPlan) -> dict[str, tuple[str, int]]:
    return {name: tuple(slot) for name, slot in plan.plans[""].placed["wordcount", "resource-aware"].places.items()}


DEMANDS = {"split": {"cpu": 60, "onheap_mb": 300, "offheap_mb": 50}, "count": {"memory_mb": 200}}


def test_demands_of_an_agenda_replace_those_of_the_workload() -> None:
    plan = planned({"demands": DEMANDS, "worker_max_heap_mb": 900})
    topology = plan.plans[""].applications["wordcount"].topology
    found = {c.id: (c.cpu_points, c.onheap, c.offheap) for c in topology.components}
    assert found == {"spout": (10, 128, 0), "split": (60, 300, 50), "count": (10, 200, 0)}
    assert topology.worker_max_heap_mb == 900
    # A resumed campaign has the same topology.
    again = campaign_plan(
        agenda_of(parse_document(dump_json(plan.agenda), "b.json")),
        cluster_from_document(parse_document(dump_json(CLUSTER))),
    )
    assert again.plans[""].applications["wordcount"].topology == topology


def test_resource_aware_separates_executors_that_need_most_of_a_node() -> None:
    together, apart = places(planned({})), places(planned({"demands": {"split": {"cpu": 60}}}))
    assert together["split[0]"][0] == together["split[1]"][0]
    assert apart["split[0]"][0] != apart["split[1]"][0]


def test_a_factor_varies_a_demand() -> None:
    key = "workloads.wordcount.demands.split.cpu"
    plan = planned({}, factors={key: [10, 60]})
    found = [each.applications["wordcount"].topology.component["split"].cpu for each in plan.plans.values()]
    assert found == [10, 60]


def test_wordcount_is_placed_on_the_emulated_inventory_as_on_machines_with_as_many_cores() -> None:
    emulated = read_cluster("emulated").value
    machines = [
        {
            "id": node.id,
            "rack": node.rack,
            "slots": node.slots,
            "sockets": node.sockets,
            "cores": node.cores,
            "memory_mb": node.memory_mb,
        }
        for node in emulated.nodes
    ]
    storm = planned({"params": {}}, {"nodes": machines})
    placed = places(planned({"params": {}}, emulated))
    assert placed == places(storm)
    assert len(placed) == 28
    assert {node for node, _ in placed.values()} == set(emulated.by_id)
    # Load of nodes is still measured in cores of this host.
    assert sum(node.cpu_points for node in emulated.nodes) == 146
    assert sum(node.demand_points for node in emulated.nodes) == 1400


def test_demands_are_compared_with_the_presented_capacity_and_observed_loads_with_the_real_one() -> None:
    node = {"id": "n1", "cores": 4, "cpu": 50, "supervisor_cpu": 400}
    cluster: Cluster = cluster_from_document(parse_document(dump_json({"nodes": [node]}))).value
    topology = planned({}).plans[""].applications["wordcount"].topology
    unobserved = Loads(Problem(cluster, (topology,)))
    observed = Loads(Problem(cluster, (topology,), Traffic(load={"split[0]": 3.0})))
    assert (unobserved.capacity, unobserved.of(topology, Executor("split", 0))) == ({"n1": 400}, 10)
    assert (observed.capacity, observed.of(topology, Executor("split", 0))) == ({"n1": 50}, 3)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"demands": {"splitt": {"cpu": 1}}}, "demands.splitt: the topology has no component 'splitt'; did you mean"),
    ({"demands": {"split": {"cpus": 1}}}, "demands.split.cpus: unknown key 'cpus'; did you mean 'cpu'?"),
    ({"demands": {"split": {"cpu": -1}}}, "demands.split.cpu: got -1"),
    ({"demands": {"split": {"memory_mb": 1, "onheap_mb": 1}}}, "demands.split.memory_mb: give memory_mb, or onheap_mb"),
    ({"demands": {"split": {"onheap_mb": 800}}}, "demands.split: an executor of 'split' needs 800 MB of heap, but a w"),
    ({"worker_max_heap_mb": 100}, "worker_max_heap_mb: an executor of 'spout' needs 128 MB of heap, but"),
    ({"worker_max_heap_mb": 0}, "worker_max_heap_mb: got 0"),
    ({"demands": {"split": {"cpu": 101}}}, "the scheduler 'resource-aware' finds no place for"),
]  # fmt: skip


@pytest.mark.parametrize(("workload", "message"), WRONG)
def test_demands_that_cannot_be_met_are_refused_with_their_place(workload: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=r"^a\.yaml:\d+: workloads\[0\]") as refused:
        planned(workload)
    assert message in str(refused.value)

"""Largest numbers that files may contain: every scheduler, cost and explanation works with them."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from campaign.place.place import Round, place
from inventory.cluster import cluster_from_document
from inventory.documents import Document
from inventory.errors import InputError
from inventory.values import MOST
from scheduler.placement_file import to_json
from scheduler.registry import computing_schedulers, make_scheduler
from workloads.topology import topology_of
from workloads.traffic import load_traffic, traffic_from_document

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

"""The operator's first hour on nodes of namespaces: provision, verify, run.

What breaks is in `test_emulated_faults.py`, how it ends in `test_emulated_restoring.py`; all share one cluster.
"""

import json

import pytest
from emulated_desk import Desk, millrace
from emulating import said

from inventory.cluster import cluster_of
from inventory.reading import read_cluster

pytestmark = [pytest.mark.emulated, pytest.mark.emulation, pytest.mark.timeout(900)]


def test_provisioned_nodes_are_what_was_asked_for(provisioned: Desk) -> None:
    assert said(provisioned.description, 1, "cat /sys/devices/system/cpu/online") in ("0,2", "0-1")
    policy = "/sys/devices/system/cpu/cpufreq/policy0"
    assert said(provisioned.description, 2, f"cat {policy}/scaling_governor {policy}/scaling_max_freq").split() == [
        "schedutil",
        "2000000",
    ]
    verified = millrace("verify", str(provisioned.inventory), "--json")
    answer = json.loads(verified.stdout)
    assert {check["what"] for check in answer["checks"]} >= {"link", "rtt"}
    wrong = [check for check in answer["checks"] if not check["ok"] and check["what"] not in ("link", "rtt")]
    assert wrong == []


def test_facts_order_the_nodes_by_their_computing_power(provisioned: Desk) -> None:
    cluster = cluster_of(read_cluster(provisioned.inventory))
    power = {node.id: node.sockets * node.cores * (node.ghz or 0) for node in cluster.nodes}
    # n1 has two of its four cores on line at 3.0 GHz, n2 four at 2.0, n3 two at 3.4, n4 and n5 two at 2.4.
    assert sorted(power, key=lambda node: (-power[node], node)) == ["n2", "n3", "n1", "n4", "n5"]
    assert power["n4"] == power["n5"]


def test_a_campaign_crosses_the_nodes_and_its_answer_is_right(provisioned: Desk) -> None:
    done = provisioned.run(provisioned.agenda("crossing"))
    assert done.returncode == 0, done.stderr[-3000:]
    (record,) = provisioned.records("crossing")
    assert record["status"] == "ok"
    assert record["tier"] == 2
    assert record["verification"]["status"] == "passed"
    assert record["measured"]["hops"]["inter_node"] > 0
    rows = record["calibration"]
    cpu = {row["node"]: row for row in rows if row["what"] == "cpu"}
    # n1 is half of itself, n2 at 2.0 of 2.8 GHz.
    assert {name: round(row["asked"], 3) for name, row in cpu.items()} == {
        "n1": 0.25,
        "n2": 0.229,
        "n3": 0.254,
        "n4": 0.2,
        "n5": 0.2,
    }
    assert all(row["got"] >= 0.95 * row["asked"] for row in cpu.values())
    assert {(row["node"], row["to"]) for row in rows if row["what"] == "link"} == {
        ("n1", "n4"),
        ("n1", "n5"),
        ("n4", "n1"),
        ("n5", "n1"),
    }

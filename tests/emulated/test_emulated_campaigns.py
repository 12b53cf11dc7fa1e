"""A provisioned emulated cluster: settings, facts, a campaign and its measurements.

Faults are in `test_emulated_faults.py`, restoring is in `test_emulated_restoring.py`; all share one cluster.
"""

import json
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet
import pytest
from emulated_clusters import output_on
from emulated_lab import EmulatedLab, millrace

from inventory.reading import read_cluster

pytestmark = [pytest.mark.emulated, pytest.mark.emulation, pytest.mark.timeout(900)]


def test_provisioned_nodes_have_the_requested_settings(provisioned: EmulatedLab) -> None:
    assert output_on(provisioned.description, 1, "cat /sys/devices/system/cpu/online") in ("0,2", "0-1")
    policy = "/sys/devices/system/cpu/cpufreq/policy0"
    assert output_on(
        provisioned.description, 2, f"cat {policy}/scaling_governor {policy}/scaling_max_freq"
    ).split() == [
        "schedutil",
        "2000000",
    ]
    verified = millrace("verify", str(provisioned.inventory), "--json")
    report = json.loads(verified.stdout)
    assert {check["what"] for check in report["checks"]} >= {"link", "rtt"}
    wrong = [check for check in report["checks"] if not check["ok"] and check["what"] not in ("link", "rtt")]
    assert wrong == []


def test_facts_order_the_nodes_by_their_computing_power(provisioned: EmulatedLab) -> None:
    cluster = read_cluster(provisioned.inventory).value
    power = {node.id: node.sockets * node.cores * (node.ghz or 0) for node in cluster.nodes}
    # n1 has two of its four cores on line at 3.0 GHz, n2 four at 2.0, n3 two at 3.4, n4 and n5 two at 2.4.
    assert sorted(power, key=lambda node: (-power[node], node)) == ["n2", "n3", "n1", "n4", "n5"]
    assert power["n4"] == power["n5"]


@pytest.fixture(scope="module")
def crossing(provisioned: EmulatedLab) -> Path:
    """Folder of a run on all nodes."""
    done = provisioned.run(provisioned.agenda("crossing"))
    assert done.returncode == 0, done.stderr[-3000:]
    (run,) = (provisioned.results / "crossing" / "latest" / "runs").iterdir()
    return run


def test_a_campaign_sends_tuples_between_nodes_and_its_answer_is_right(
    provisioned: EmulatedLab, crossing: Path
) -> None:
    (record,) = provisioned.records("crossing")
    assert record["status"] == "ok"
    assert record["tier"] == 2
    assert record["verification"]["status"] == "passed"
    assert record["measured"]["hops"]["inter_node"] > 0
    rows = record["calibration"]
    cpu = {row["node"]: row for row in rows if row["what"] == "cpu"}
    # n1 has half of its cores on line, n2 runs at 2.0 of 2.8 GHz.
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


def test_cpu_rows_of_nodes_stay_within_quotas_and_rows_of_host_cores_are_marked_shared(crossing: Path) -> None:
    asked = {
        row["node"]: row["asked"]
        for row in json.loads((crossing / "run.json").read_text())["calibration"]
        if row["what"] == "cpu"
    }
    rows = pyarrow.parquet.read_table(crossing / "traces" / "cpu.parquet").to_pylist()
    used: dict[tuple[str, str], list[float]] = defaultdict(list)
    last_ns: dict[tuple[str, str, str], int] = {}
    for row in sorted(rows, key=lambda row: row["t_ns"]):
        # A sample at a mark may cover so short a time that it contains a whole period's quota.
        source = row["node"], row["scope"], row["name"]
        before_ns, last_ns[source] = last_ns.get(source, 0), row["t_ns"]
        if row["t_ns"] - before_ns >= 5 * 10**8:
            used[row["node"], row["scope"]].append(row["cores"])
        assert row["shared"] is (row["scope"] == "core")
        assert row["package"] is None
    for node, share in asked.items():
        # Samples are not aligned with the quota's periods.
        assert max(used[node, "node"]) <= 1.2 * share
        mean = sum(used[node, "node"]) / len(used[node, "node"])
        processes = sum(sum(used[node, scope]) / len(used[node, scope]) for scope in ("worker", "agent"))
        assert 0 < mean <= 1.05 * share
        assert mean >= 0.8 * processes

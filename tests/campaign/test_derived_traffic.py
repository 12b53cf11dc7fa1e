"""Traffic and loads that follow from an agenda's rates, selectivities and costs, before anything has run."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from campaign.commands.main import run
from campaign.runner.open_campaign import Opened, new
from workloads.derived_traffic import TupleCost, derived_traffic
from workloads.topology import Component, Input, Topology
from workloads.traffic import Traffic, load_traffic

NODES = [{"id": f"n{k}", "address": f"127.0.0.{k + 1}", "cores": 4, "slots": 4} for k in (1, 2)]

CHAIN = {
    "id": "chain",
    "components": [
        {"id": "spout", "kind": "spout", "parallelism": 1},
        {"id": "split", "kind": "bolt", "parallelism": 2, "inputs": [{"from": "spout"}]},
        {
            "id": "count",
            "kind": "bolt",
            "parallelism": 2,
            "inputs": [{"from": "split", "grouping": "fields", "fields": ["key"]}],
        },
    ],
}

COSTS = {"split": {"cost_us": 500, "selectivity": 2.0}, "count": {"cost_us": 400}}


def opened(folder: Path, tuples_per_s: float = 100, **changes: Any) -> Opened:
    (folder / "two.json").write_text(json.dumps({"nodes": NODES}))
    (folder / "chain.json").write_text(json.dumps(CHAIN))
    agenda = {
        "name": "derived",
        "inventory": str(folder / "two.json"),
        "repetitions": 1,
        "warmup_s": 2,
        "duration_s": 6,
        "sensors": ["cpu"],
        "workloads": [
            {
                "name": "from-topology",
                "label": "chain",
                "params": {"topology_file": str(folder / "chain.json"), "components": COSTS},
                "rate": {"kind": "constant", "tuples_per_s": tuples_per_s},
            }
        ],
        "schedulers": ["even", "optimal", "aniello-online"],
        **changes,
    }
    (folder / "a.json").write_text(json.dumps(agenda))
    return new(str(folder / "a.json"), None, folder / "results")


def by_component(traffic: Traffic) -> tuple[dict[tuple[str, str], float], dict[str, float]]:
    rates: dict[tuple[str, str], float] = defaultdict(float)
    loads: dict[str, float] = defaultdict(float)
    for edge in traffic.edges:
        rates[edge.source.partition("[")[0], edge.destination.partition("[")[0]] += edge.tuples_per_s
    for name, load in traffic.load.items():
        loads[name.partition("[")[0]] += load
    return dict(rates), dict(loads)


def test_rates_follow_selectivities_and_groupings() -> None:
    topology = Topology(
        "t",
        (
            Component("s", "spout", 2),
            Component("a", "bolt", 2, inputs=(Input("s"),)),
            Component("g", "bolt", 3, inputs=(Input("a", "global"), Input("s", "all"))),
        ),
    )
    costs = {"s": TupleCost(None), "a": TupleCost(1_000.0, 0.5, 10.0), "g": TupleCost(100.0)}
    traffic = derived_traffic(topology, 80.0, costs, {0: 1.0})
    assert traffic.rate == pytest.approx(
        {
            **{(f"s[{at}]", f"a[{to}]"): 20.0 for at in range(2) for to in range(2)},
            **{(f"s[{at}]", f"g[{to}]"): 40.0 for at in range(2) for to in range(3)},
            **{(f"a[{at}]", "g[0]"): 20.0 for at in range(2)},
        }
    )
    # 40 tuples/s of 1,000 us are 4 % of a core; what a spout costs is not known.
    assert traffic.load == pytest.approx({"a[0]": 4.0, "a[1]": 4.0, "g[0]": 1.2, "g[1]": 0.8, "g[2]": 0.8})
    assert next(e for e in traffic.edges if e.source == "a[0]").bytes_per_s == pytest.approx(200.0)


def test_schedulers_that_use_traffic_get_derived_one_and_it_is_marked(tmp_path: Path) -> None:
    placed = opened(tmp_path).plan.plans[""].placed
    assert placed["chain", "even"].traffic is None
    assert placed["chain", "optimal"].traffic == placed["chain", "aniello-online"].traffic == "derived"
    assert placed["chain", "optimal"].not_given == ()
    # What a placement costs is counted by them for every scheduler.
    for scheduler in ("even", "optimal", "aniello-online"):
        answer = placed["chain", scheduler].answer
        assert answer.traffic == "derived"
        assert answer.cost.inter_node_tuples_per_s is not None


def test_no_worker_gets_more_derived_load_than_it_can_do(tmp_path: Path) -> None:
    # 1,200/s: 60 points for split, 96 for count, and 60 + 96 are more than a worker has.
    plan = opened(tmp_path, 1_200).plan.plans[""]
    derived, optimal = plan.applications["chain"].derived, plan.placed["chain", "optimal"]
    assert derived is not None
    assert sum(derived.load.values()) == pytest.approx(156)
    work: dict[Any, float] = defaultdict(float)
    for name, slot in optimal.places.items():
        work[slot] += derived.load.get(name, 0.0)
    assert len(work) > 1
    assert max(work.values()) <= 100
    # What the spout costs is not known, so its worker, within the limit without it, may be overloaded, too.
    assert (optimal.answer.cost.overloaded_workers, optimal.answer.cost.undetermined_workers) == (0, 1)
    even = plan.placed["chain", "even"].answer.cost
    assert (even.overloaded_workers, even.undetermined_workers) == (1, 0)


def test_loads_beyond_the_cluster_are_left_out_and_said(tmp_path: Path) -> None:
    placed = opened(tmp_path, 100_000).plan.plans[""].placed["chain", "optimal"]
    assert placed.traffic == "derived, without loads, which are more than the nodes can do"
    assert placed.not_given == ("load",)


def test_without_a_rate_nothing_is_derived(tmp_path: Path) -> None:
    workload = {"name": "from-topology", "label": "chain", "rate": {"kind": "max"}}
    placed = opened(tmp_path, workloads=[workload], schedulers=["optimal"]).plan.plans[""].placed
    assert placed["chain", "optimal"].traffic is None
    assert "traffic" in placed["chain", "optimal"].not_given


def test_derived_traffic_is_what_a_run_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    campaign = opened(tmp_path, schedulers=["optimal"])
    derived = campaign.plan.plans[""].applications["chain"].derived
    assert derived is not None
    out = tmp_path / "run"
    assert run(["--quiet", "run", str(tmp_path / "a.json"), "--out", str(out), "--no-report"]) == 0
    capsys.readouterr()
    (folder,) = (path for path in out.rglob("runs/*") if path.is_dir())
    assert json.loads((folder / "run.json").read_text())["traffic"] == "derived"
    assert run(["traffic", str(folder)]) == 0
    (tmp_path / "traffic.json").write_text(capsys.readouterr().out)
    measured = load_traffic(tmp_path / "traffic.json")
    rates, loads = by_component(measured)
    derived_rates, derived_loads = by_component(derived)
    # Keys divide the tuples as derived, however busy the machine is.
    first = [edge for edge in measured.edges if edge.destination == "count[0]"]
    share = sum(edge.tuples_per_s for edge in first) / rates["split", "count"]
    expected = sum(edge.tuples_per_s for edge in derived.edges if edge.destination == "count[0]")
    assert share == pytest.approx(expected / derived_rates["split", "count"], rel=0.15)
    # A busy machine emits late and then catches up, so the rates are those of what was emitted.
    emitted = rates["spout", "split"] / derived_rates["spout", "split"]
    assert 0.7 < emitted < 1.3
    assert rates["split", "count"] == pytest.approx(derived_rates["split", "count"] * emitted, rel=0.2)
    for name in ("split", "count"):  # measured load has the runtime's work, too
        expected = derived_loads[name] * emitted
        assert 0.75 * expected <= loads[name] <= 1.5 * expected + 3

"""A campaign on a machine with meters: energy per tuple, hop and consumer is what one works out by hand."""

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from replaying import Replay
from trees import meters

from agents.power.host import ROOT_VARIABLE

pytestmark = pytest.mark.loopback

PACKAGE = f"{meters.POWERCAP}/intel-rapl:0/energy_uj"
MEMORY = f"{meters.POWERCAP}/intel-rapl:0:0/energy_uj"
TURN_UJ = 100_000_000
UNIT = 1e-3


class Raced(NamedTuple):
    folder: Path
    replay: Replay
    results: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def raced(shared_desk: Any, tmp_path_factory: pytest.TempPathFactory) -> Raced:
    """Two schedulers on a machine whose package draws 30 W and 90 W in turns and whose memory 4 W."""
    files = {
        **meters.zone("intel-rapl:0", "package-0", TURN_UJ - 1, most_uw=60_000_000),
        **meters.zone("intel-rapl:0:0", "dram", TURN_UJ - 1, most_uw=60_000_000),
    }
    root = meters.plant(tmp_path_factory.mktemp("root"), files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ROOT_VARIABLE, str(root))
        with Replay(root, {PACKAGE: (30.0, 90.0, 0.1, TURN_UJ), MEMORY: (4.0, 4.0, 1.0, TURN_UJ)}) as replay:
            agenda = shared_desk.agenda(sensors=["cpu", "power"], idle={"settle_s": 0.2, "measure_s": 1.2})
            outcome = shared_desk.run("run", agenda)
    assert outcome.status == 0, outcome
    results = shared_desk.results()
    assert {run["scheduler"] for run in results.values()} == {"even", "top-storm"}
    return Raced(shared_desk.campaign / "runs", replay, results)


def rows(raced: Raced, run: str, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(raced.folder / run / "traces" / f"{table}.parquet").to_pylist()
    return found


def interval(raced: Raced, run: str, node: str = "n1") -> tuple[int, int]:
    """By the node's own word."""
    marks = {e["kind"]: e["t_ns"] for e in rows(raced, run, "event") if (e["node"], e["worker"]) == (node, -1)}
    return marks["measure_start"], marks["measure_end"]


def test_energy_per_tuple_of_each_scheduler_is_what_the_counters_counted_over_what_came_to_sinks(raced: Raced) -> None:
    for name, run in raced.results.items():
        energy = run["measured"]["energy"]
        start_ns, end_ns = interval(raced, name)
        truth = [raced.replay.joules_between(path, start_ns, end_ns) for path in (PACKAGE, MEMORY)]
        least, most = (sum(each) for each in zip(*truth, strict=True))
        assert least - energy["bound_joules"] <= energy["joules"] <= most + energy["bound_joules"]
        assert energy["sources"] == ["rapl"]
        assert energy["modelled"] is False
        assert energy["reason"] is None
        tuples = run["measured"]["throughput_tuples_per_s"] * (end_ns - start_ns) / 1e9
        assert energy["tuples"] == pytest.approx(tuples, rel=0.05)
        assert energy["joules_per_tuple"] == pytest.approx(energy["joules"] / energy["tuples"], rel=1e-3)
        # Both nodes are this machine: its joules count once.
        assert [machine["nodes"] for machine in energy["machines"]] == [["n1", "n2"]]


def test_idle_is_metered_before_and_after_and_net_stands_beside_gross(raced: Raced) -> None:
    for name, run in raced.results.items():
        (machine,) = run["measured"]["energy"]["machines"]
        baselines = [machine["idle"][when] for when in ("before", "after")]
        for baseline in baselines:
            assert baseline["reason"] is None
            assert baseline["seconds"] >= 1.2
            assert set(baseline["domains"]) == {"package-0", "dram/package-0"}
            assert baseline["domains"]["dram/package-0"] == pytest.approx(4.0, rel=0.25)
            assert baseline["watts"] == pytest.approx(sum(baseline["domains"].values()))
        start_ns, end_ns = interval(raced, name)
        watts = sum(baseline["watts"] for baseline in baselines) / 2
        assert machine["idle_joules"] == pytest.approx(watts * (end_ns - start_ns) / 1e9)
        assert machine["net_joules"] == pytest.approx(machine["joules"] - machine["idle_joules"])


def test_consumers_hops_and_trace_rows_add_up_to_what_was_measured(raced: Raced) -> None:
    for name, run in raced.results.items():
        energy = run["measured"]["energy"]
        (machine,) = energy["machines"]
        parts = rows(raced, name, "energy")
        for domain in machine["domains"]:
            of_domain = sum(part["joules"] for part in parts if part["domain"] == domain["domain"])
            assert of_domain == pytest.approx(domain["joules"], rel=1e-3, abs=UNIT)
        assert sum(energy["consumers"].values()) == pytest.approx(energy["joules"], rel=1e-3, abs=UNIT)
        by_workers = sum(worker["joules"] for worker in machine["workers"])
        assert by_workers == pytest.approx(energy["consumers"]["executors"] + energy["consumers"]["transport"])
        assert by_workers > 0
        assert {(part["node"], part["worker"]) for part in parts if part["consumer"] == "executor"} <= {
            (worker["node"], worker["worker"]) for worker in machine["workers"]
        }
        bolts = [e for e in machine["executors"] if not e["executor"].startswith("spout")]
        assert {e["executor"] for e in bolts} == {"split[0]", "split[1]", "count[0]", "count[1]"}
        hops = energy["hops"]
        assert {hop: each["tuples"] for hop, each in hops.items()} == run["measured"]["hops"]
        for each in hops.values():
            assert (each["joules"] is None) == (each["tuples"] == 0)
        of_hops = sum(each["joules"] or 0.0 for each in hops.values())
        assert sum(bolt["joules"] for bolt in bolts) <= of_hops * (1 + 1e-9) <= by_workers * (1 + 1e-9)

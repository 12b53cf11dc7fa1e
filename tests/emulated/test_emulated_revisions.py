"""Schedulers that revise a running topology whose nodes have slow links, modelled meters, and little CPU time.

One cluster for two campaigns: skewed traffic over links that delay, and a burst that overloads a node.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from decision_log import decisions
from emulated_lab import EmulatedLab, millrace

from analysis.page.changes import mean_rows, revision_rows
from analysis.records.campaign import load_campaign
from controller.emulation.description import description_in
from inventory.reading import find_inventory

pytestmark = [pytest.mark.emulated, pytest.mark.emulation, pytest.mark.timeout(900)]

PAGE = (Path(__file__).parents[2] / "docs" / "online.md").read_text()
_, HOSTS, GAIN = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
"""Example of the page: three nodes, of which two have room for all executors, and its agenda."""

DELAY_MS = 15

TOLERANCE = 0.05
"""Relative tolerance between a rate and its prediction."""

LOW_PER_S, HIGH_PER_S, RISE_S, P_MIN = 6, 110, 20, 0.93
"""Rates before and after `RISE_S`, and the part of its performance that a node must keep.

At the lowest clock a node keeps this part up to a load of 0.12; n1 has 0.06 at first, then 0.16."""

REVISED = ("i-scheduler", "aniello-online")
BURST_S, CALM_S, WINDOW_S, BOUND = 13, 19, 3, 0.7
"""n1 has a load of 0.3 to 0.5, and is overloaded in the burst, however fast the host is. The burst ends two
seconds after the revision, so that queues are processed and latency returns to its level in time."""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedLab]:
    """Cluster of the page's example; emulated nodes have energy counters that follow `millrace_power`."""
    folder = tmp_path_factory.mktemp("revisions")
    shipped = find_inventory("emulated").read_text().replace("/run/millrace/emulated", str(folder / "cluster"))
    content = yaml.safe_load(shipped)
    content["all"]["children"]["workers"] |= yaml.safe_load(HOSTS)
    inventory = folder / "slow.yml"
    inventory.write_text(yaml.safe_dump(content))
    try:
        done = millrace("provision", str(inventory))
        assert done.returncode == 0, done.stderr[-3000:]
        description = description_in(folder / "cluster")
        assert description is not None
        yield EmulatedLab(folder, inventory, description)
    finally:
        millrace("clean", str(inventory))


def run_campaign(lab: EmulatedLab, agenda: Path) -> dict[str, dict[str, Any]]:
    """Run a campaign, also on a busy host, and return the record of each scheduler."""
    done = lab.run(agenda, "--accept-shortfall")
    assert done.returncode == 0, done.stderr[-3000:]
    return {record["scheduler"]: record for record in lab.records(agenda.stem)}


@pytest.fixture(scope="module")
def raced(nodes: EmulatedLab) -> dict[str, dict[str, Any]]:
    agenda = nodes.folder / "gain.yaml"
    agenda.write_text(GAIN)
    return run_campaign(nodes, agenda)


def first_done(record: dict[str, Any]) -> dict[str, Any]:
    """Return the first revision that was applied."""
    return next(each for each in record["measured"]["revisions"] if each["outcome"] == "done")


def test_answers_are_exact_with_every_scheduler(raced: dict[str, dict[str, Any]]) -> None:
    assert set(raced) == {"even", *REVISED}
    for scheduler, record in raced.items():
        assert (record["status"], record["verification"]["status"]) == ("ok", "passed"), scheduler
        assert record["verification"]["checked"] > 0
        assert record["tier"] == 2
        assert {row["asked"] for row in record["calibration"] if row["what"] == "rtt"} == {2 * DELAY_MS}


@pytest.mark.parametrize("scheduler", REVISED)
def test_traffic_between_nodes_is_what_was_predicted(raced: dict[str, dict[str, Any]], scheduler: str) -> None:
    measured = raced[scheduler]["measured"]
    revision = first_done(raced[scheduler])
    expected = revision["expects"]["cut"]
    assert revision["reason"] == "cut"
    assert revision["at_s"] < 15
    assert revision["moves"] > 0
    # Both start with the placement of `even`, whose run has no revisions.
    static = raced["even"]["measured"]["means"]["whole_run"]["hops"]["inter_node"]
    assert revision["before"]["cut"] == pytest.approx(static, rel=TOLERANCE)
    assert 0 < expected < 0.7 * static
    # In the scheduler's windows, and in the traces.
    assert revision["after"]["cut"] == pytest.approx(expected, rel=TOLERANCE)
    (cost,) = measured["revision_costs"]
    assert cost["after"]["hops"]["inter_node"] == pytest.approx(expected, rel=TOLERANCE)


@pytest.mark.parametrize("scheduler", REVISED)
def test_less_traffic_between_nodes_improves_p95_over_slow_links(
    raced: dict[str, dict[str, Any]], scheduler: str
) -> None:
    measured = raced[scheduler]["measured"]
    (cost,) = measured["revision_costs"]
    after = measured["means"]["after_last_revision"]["latency_p95_ms"]
    # A tuple crosses one or two links fewer.
    for before in (cost["before"]["latency_p95_ms"], raced["even"]["measured"]["latency_ms"]["p95"]):
        assert after < before - 0.5 * DELAY_MS


@pytest.fixture(scope="module")
def burst(nodes: EmulatedLab) -> dict[str, Any]:
    agenda = nodes.agenda(
        "burst",
        warmup_s=2,
        duration_s=29,
        sensors=["cpu", "power"],
        idle={"measure_s": 0},
        workloads=[
            {
                "name": "linear",
                "params": {"operators": 3, "tasks": 2, "workers": 3, "cost_us": 3000},
                "rate": {"kind": "constant", "tuples_per_s": 20},
            }
        ],
        schedulers=[
            {
                "name": "er-stream",
                "params": {"B": BOUND, "max_moves": 3},
                "online": {"window_s": WINDOW_S, "first_s": 5, "ask_s": 12, "revision": {"settle_s": 1}},
            }
        ],
        timeline=[{"at_s": at_s, "do": "rate", "tuples_per_s": rate} for at_s, rate in ((BURST_S, 80), (CALM_S, 20))],
    )
    return run_campaign(nodes, agenda)["er-stream"]


def test_a_burst_makes_executors_leave_the_overloaded_node(burst: dict[str, Any]) -> None:
    assert (burst["status"], burst["verification"]["status"]) == ("ok", "passed")
    calm, *_ = burst["measured"]["revisions"]
    assert (calm["outcome"], calm["text"]) == ("no", "nothing is to be changed")
    revision = first_done(burst)
    assert (revision["reason"], revision["moves"] > 0) == ("overload", True)
    assert BURST_S < revision["begun_s"] < CALM_S
    assert revision["before"]["load"] > BOUND > calm["before"]["load"]
    moves = [each for each in burst["measured"]["moves"] if each["revision"] == revision["number"]]
    assert {each["from"] for each in moves} == {"n1/0"}
    assert revision["expects"]["load"] < BOUND
    assert revision["after"]["load"] < revision["before"]["load"]


def test_what_a_revision_cost_in_energy_is_marked_as_modelled(burst: dict[str, Any]) -> None:
    measured = burst["measured"]
    total = measured["energy"]
    assert (total["sources"], total["modelled"], total["joules"] > 0) == (["rapl"], True, True)
    revision, cost = first_done(burst), measured["revision_costs"][0]
    assert cost["number"] == revision["number"]
    excess = cost["energy"]
    assert (excess["sources"], excess["modelled"]) == (["rapl"], True)
    # Three nodes of 20 W, and up to 40 W of work on each.
    assert all(60 < each["watts"] < 180 for each in (cost["before"], revision["before"], revision["after"]))
    assert excess["joules"] is not None
    assert excess["bound_joules"] > 0
    assert revision["expects"]["watts"] is not None


def test_no_watt_of_a_model_is_shown_as_a_measured_one(nodes: EmulatedLab, burst: dict[str, Any]) -> None:
    folder = nodes.results / "burst" / "latest"
    campaign = load_campaign(folder.resolve())
    rows = [*revision_rows(campaign), *mean_rows(campaign)]
    assert len(rows) >= 2
    assert {(row["source"], row["modelled"]) for row in rows} == {("rapl", True)}
    (run,) = (folder / "runs").iterdir()
    metered = [node for each in decisions(run) for node in each["observation"]["nodes"].values() if node["watts"]]
    assert {(node["source"], node["modelled"]) for node in metered} == {("rapl", True)}


def test_an_observation_of_the_run_marks_modelled_watts(nodes: EmulatedLab, burst: dict[str, Any]) -> None:
    done = millrace("observe", str((nodes.results / "burst" / "latest").resolve()), "--at", "10", "--window", "5")
    assert done.returncode == 0, done.stderr
    observed = yaml.safe_load(done.stdout)["nodes"].values()
    assert len(observed) == 3
    assert {(node["source"], node["modelled"], node["watts"] > 19) for node in observed} == {("rapl", True, True)}


@pytest.fixture(scope="module")
def slowed(nodes: EmulatedLab) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Record and decisions of a run; n2 has the longest path, n1 a shorter one."""
    agenda = nodes.agenda(
        "slowed",
        warmup_s=2,
        duration_s=32,
        sensors=["cpu"],
        workloads=[
            {
                "name": "random-dag",
                "params": {"executors": 18, "layers": 3, "shape_seed": 5, "workers": 3, "cost_us": 3000},
                "rate": {"kind": "constant", "tuples_per_s": LOW_PER_S},
            }
        ],
        schedulers=[
            {
                "name": "er-stream",
                "params": {"alpha": 1000, "max_moves": 0, "p_min": P_MIN},
                "online": {"window_s": WINDOW_S, "first_s": 5, "ask_s": 3, "revision": {"settle_s": 1}},
            }
        ],
        timeline=[{"at_s": RISE_S, "do": "rate", "tuples_per_s": HIGH_PER_S}],
    )
    record = run_campaign(nodes, agenda)["er-stream"]
    (run,) = (nodes.results / "slowed" / "latest" / "runs").iterdir()
    return record, decisions(run)


def clock_of(node: str, decision: dict[str, Any]) -> dict[str, Any]:
    """Return what a decision says about a node's clock."""
    account: dict[str, Any] = decision["answer"]["details"]["clocks"][node]
    return account


def test_a_node_beside_the_longest_path_is_slowed_after_three_equal_windows(
    slowed: tuple[dict[str, Any], list[dict[str, Any]]],
) -> None:
    record, entries = slowed
    assert (record["status"], record["verification"]["status"]) == ("ok", "passed")
    revision = first_done(record)
    (index,) = [at for at, each in enumerate(entries) if each["number"] == revision["number"]]
    assert (revision["reason"], revision["moves"], index) == ("clocks", 0, 2)
    assert revision["begun_s"] < RISE_S
    answers = [clock_of("n1", each) for each in entries[:3]]
    assert [(each["windows"], each["sets"]) for each in answers] == [(1, False), (2, False), (3, True)]
    (lowest,) = {each["hz"] for each in answers}
    assert revision["clocks"] == {"n1": lowest}
    # As reported by the nodes; n2 has the longest path.
    observed = [each["observation"]["nodes"] for each in entries]
    assert [each["n1"]["hz"] > lowest for each in observed[:3]] == [True] * 3
    assert [(each["n1"]["asked_hz"], each["n1"]["hz"]) for each in observed[3:5]] == [(lowest, lowest)] * 2
    assert {clock_of("n2", each)["binding"] for each in entries} == {"critical"}
    assert {each["n2"]["hz"] for each in observed} == {observed[0]["n2"]["hz"]}


def test_the_clock_of_a_slowed_node_is_raised_at_once_when_the_rate_rises(
    slowed: tuple[dict[str, Any], list[dict[str, Any]]],
) -> None:
    record, entries = slowed
    _, raised, *_ = [each for each in record["measured"]["revisions"] if each["outcome"] == "done"]
    (index,) = [at for at, each in enumerate(entries) if each["number"] == raised["number"]]
    assert RISE_S < raised["begun_s"] < RISE_S + 3 * WINDOW_S
    account = clock_of("n1", entries[index])
    assert (account["windows"], account["sets"], account["binding"]) == (1, True, "y_min")
    assert account["hz"] > account["now_hz"] == clock_of("n1", entries[2])["hz"]
    assert (raised["reason"], raised["clocks"]) == ("clocks", {"n1": account["hz"]})
    assert entries[index + 1]["observation"]["nodes"]["n1"]["hz"] >= account["hz"]
    # Clocks set by the scheduler do not make the run suspect.
    assert {row["node"] for row in record["cpu"] if row["ok"]} == {"n1"}
    assert not [each for each in record["suspect"] if "clock" in each]

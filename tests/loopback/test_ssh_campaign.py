"""Whole campaigns over real SSH: results, clean-up, and recovery from lost connections and nodes."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow.parquet
import pytest
import yaml
from sshd import Lab, lab

pytestmark = [pytest.mark.loopback, pytest.mark.sshd]

TIMEOUT_S = 100.0
RUN = "001-wordcount-even-r1"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab"), ["127.0.0.2", "127.0.0.3", "127.0.0.4"]) as made:
        yield made


@pytest.fixture(scope="module")
def done(shared_workspace: Any, nodes: Lab) -> Any:
    """Workspace with a finished campaign, its `outcome`, and the number of `logins` to each node."""
    agenda = shared_workspace.agenda(inventory=str(nodes.inventory), schedulers=["even"], repetitions=2)
    before = logins(nodes)
    shared_workspace.outcome = shared_workspace.run("run", agenda)
    assert shared_workspace.outcome.status == 0, shared_workspace.outcome
    shared_workspace.logins = {name: count - before[name] for name, count in logins(nodes).items()}
    return shared_workspace


def wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.05)


def logins(nodes: Lab) -> dict[str, int]:
    """Return node -> number of its logins."""
    return {name: node.log.count("Accepted publickey") for name, node in nodes.nodes.items()}


def nothing_runs(nodes: Lab) -> bool:
    return not any(node.campaign_processes() for node in nodes.nodes.values())


def start(workspace: Any, nodes: Lab, **changes: Any) -> Any:
    """Start a campaign; wait until its only run is measured."""
    entries = {"inventory": str(nodes.inventory), "schedulers": ["even"], "duration_s": 10, "checkpoint_s": 1}
    campaign = workspace.start("run", workspace.agenda(**entries | changes))
    workspace.wait_for_stage(1, "measuring")
    return campaign


def test_a_campaign_over_ssh_gives_the_same_results_as_on_loopback(done: Any, nodes: Lab) -> None:
    record = done.results()[RUN]
    assert record["status"] == "ok"
    assert record["verification"]["status"] == "passed"
    assert record["tier"] == 1
    assert record["measured"]["hops"]["inter_node"] > 0
    run = done.campaign / "runs" / RUN
    assert {path.name for path in (run / "logs").iterdir()} == set(nodes.nodes)
    assert (run / "traces" / "throughput.parquet").is_file()


def test_every_node_is_logged_in_to_once_for_the_whole_campaign(done: Any, nodes: Lab) -> None:
    assert done.logins == dict.fromkeys(nodes.nodes, 1)


def test_the_second_run_takes_over_the_agents_of_the_first(done: Any, nodes: Lab) -> None:
    second = done.results()["002-wordcount-even-r2"]
    assert not any("agent_replaced" in node for node in second["nodes"].values())
    for name in nodes.nodes:
        log = (done.campaign / "runs" / "002-wordcount-even-r2" / "logs" / name / "agent.log").read_text()
        assert "used again: clean" in log


def test_nothing_is_left_on_a_node(done: Any, nodes: Lab) -> None:
    assert nothing_runs(nodes)
    for node in nodes.nodes.values():
        assert [path.name for path in node.work.iterdir()] == [".lock"]


def test_a_campaign_goes_on_where_its_inventory_has_moved_and_without_nodes_that_have_gone(
    workspace: Any, nodes: Lab
) -> None:
    here = workspace.folder / "here.yml"
    lab = yaml.safe_load(nodes.inventory.read_text())
    lab["workers"]["vars"] |= {"ansible_become_password": "sesame", "millrace_meters": {"rate_hz": 5}}
    here.write_text(yaml.safe_dump(lab))
    brief = {"warmup_s": 0.1, "duration_s": 0.4, "schedulers": ["even"]}
    first = workspace.run("run", workspace.agenda(inventory=str(here), **brief))
    assert first.status == 0, first
    folder = workspace.campaign
    begun = json.loads((folder / "campaign.json").read_text())
    assert "sesame" not in (folder / "campaign.json").read_text()
    assert begun["hosts"]["n2"]["ansible_port"] == nodes.nodes["n2"].port
    assert "millrace_meters" not in begun["hosts"]["n2"]
    elsewhere = workspace.folder / "there" / "moved.yml"
    elsewhere.parent.mkdir()
    del lab["workers"]["hosts"]["n1"]
    elsewhere.write_text(yaml.safe_dump(lab))
    here.unlink()

    # The record is enough.
    before = logins(nodes)
    again = workspace.run("run", "--resume", str(folder), "--repetitions", "2")
    assert again.status == 0, again
    assert logins(nodes) == {name: count + 1 for name, count in before.items()}
    assert f"{here}: is gone; the nodes are reached as it said at the first start" in again.err

    refused = workspace.call("run", "--resume", str(folder), "--repetitions", "3", "--inventory", str(elsewhere))
    assert refused.status == 2
    assert f"{elsewhere}: has no host 'n1', which is a node of this campaign" in refused.err
    assert "leave it out (--without n1)" in refused.err
    misspelt = workspace.call("run", "--resume", str(folder), "--without", "n11")
    assert misspelt.status == 2
    assert "--without n11" in misspelt.err
    assert "did you mean 'n1'?" in misspelt.err
    assert workspace.call("run", "agenda.json", "--without", "n1").status == 2

    options = ("--inventory", str(elsewhere), "--without", "n1")
    rest = workspace.run("run", "--resume", str(folder), "--repetitions", "3", *options)
    assert rest.status == 0, rest
    used = {
        name: {each["node"] for each in record["placement"]["topologies"]["wordcount"]["assignments"]}
        for name, record in workspace.results().items()
    }
    assert used == {
        "001-wordcount-even-r1": {"n1", "n2"},
        "002-wordcount-even-r2": {"n1", "n2"},
        "003-wordcount-even-r3": {"n2", "n3"},
    }
    doubt = "placed without n1, left out when the campaign was resumed"
    assert [doubt in record["suspect"] for record in workspace.results().values()] == [False, False, True]
    ended = json.loads((folder / "campaign.json").read_text())
    assert ended["cluster"] == begun["cluster"]
    assert [entry.get("left_out", []) for entry in ended["resumed"]] == [[], ["n1"]]
    assert [entry["reached_by"] for entry in ended["resumed"]] == [str(folder / "inventory.json"), str(elsewhere)]


def test_nodes_that_cannot_be_used_are_all_named_before_anything_is_written(workspace: Any, nodes: Lab) -> None:
    before = nodes.known_hosts.read_text()
    nodes.known_hosts.write_text(nodes.nodes["n2"].known_host)
    try:
        outcome = workspace.call("run", workspace.agenda(inventory=str(nodes.inventory)))
    finally:
        nodes.known_hosts.write_text(before)
    assert outcome.status == 3, outcome
    assert outcome.err.count("is not known") == 2
    lines = [line.strip().removeprefix("millrace: ") for line in outcome.err.splitlines()]
    assert {"node n1:", "node n3:"} <= {line[:8] for line in lines}
    assert not (workspace.folder / "results").exists()
    assert not list(workspace.temporary.iterdir())


@pytest.mark.long
def test_a_controller_that_is_killed_leaves_no_process_on_any_node(workspace: Any, nodes: Lab) -> None:
    campaign = start(workspace, nodes, duration_s=3600)
    assert not nothing_runs(nodes)
    campaign.kill()
    campaign.communicate()
    wait(lambda: nothing_runs(nodes), "the end of agents and workers")
    workspace.wait_until_no_process()


@pytest.mark.long
def test_a_network_cut_of_five_seconds_causes_no_recovery(workspace: Any, nodes: Lab) -> None:
    campaign = start(workspace, nodes)
    cut = nodes.nodes["n2"]
    cut.signal(signal.SIGSTOP)
    time.sleep(5)
    cut.signal(signal.SIGCONT)
    outcome = workspace.wait_for_end(campaign)
    assert outcome.status == 0, outcome
    record = workspace.results()[RUN]
    assert record["verification"]["status"] == "passed"
    assert record["measured"]["recoveries"] == []


@pytest.mark.long
def test_the_run_goes_on_when_the_sshd_of_a_node_is_killed(workspace: Any, nodes: Lab) -> None:
    campaign = start(workspace, nodes)
    node = nodes.nodes["n2"]
    node.kill()
    wait(lambda: not node.campaign_processes(), "the end of its processes")
    node.start()
    outcome = workspace.wait_for_end(campaign)
    assert outcome.status == 0, outcome
    record = workspace.results()[RUN]
    assert record["verification"]["status"] == "passed"
    assert len(record["measured"]["recoveries"]) >= 1
    assert nothing_runs(nodes)


@pytest.mark.long
def test_a_node_that_is_cut_off_for_good_stops_by_itself_and_the_run_goes_on_elsewhere(
    workspace: Any, nodes: Lab
) -> None:
    campaign = start(workspace, nodes)
    cut = nodes.nodes["n1"]
    cut.signal(signal.SIGSTOP)
    try:
        wait(lambda: not cut.campaign_processes(), "the end of its processes")
        outcome = workspace.wait_for_end(campaign)
    finally:
        cut.signal(signal.SIGCONT)
    assert outcome.status == 0, outcome
    record = workspace.results()[RUN]
    assert record["verification"]["status"] == "passed"
    assert "has been silent for" in record["measured"]["recoveries"][0]["cause"]
    assert nothing_runs(nodes)


@pytest.mark.root
@pytest.mark.long
def test_latencies_between_nodes_with_different_clocks_have_a_bound(workspace: Any, tmp_path_factory: Any) -> None:
    clock_offset_s = 5000
    with lab(tmp_path_factory.mktemp("clocks"), clock_offset_s={"n2": clock_offset_s}) as nodes:
        outcome = workspace.run(
            "run", workspace.agenda(inventory=str(nodes.inventory), schedulers=["even"], duration_s=5)
        )
    assert outcome.status == 0, outcome
    record = workspace.results()[RUN]
    (apart,) = record["clocks"]
    assert (apart["node"], apart["to"]) == ("n1", "n2")
    clock = record["nodes"]["n2"]["clock"]
    assert abs(clock["offset_ns"] - clock_offset_s * 10**9) <= clock["bound_ns"] == apart["bound_ns"]
    assert record["nodes"]["n1"]["clock"] == {"offset_ns": 0, "bound_ns": 0}
    latency = record["measured"]["latency_ms"]
    assert latency["bound"] == round(apart["bound_ns"] / 1e6, 3) > 0
    # Without the correction, latencies would be 5000 s, or 0.
    assert latency["max"] is None or latency["bound"] < latency["max"] < 1e6
    rows = pyarrow.parquet.read_table(workspace.campaign / "runs" / RUN / "traces" / "clock.parquet").to_pylist()
    measured = [row for row in rows if row["offset_ns"] is not None]
    assert {row["node"] for row in measured} == {"n2"}
    assert len(measured) >= 2
    assert all(abs(row["offset_ns"] - clock_offset_s * 10**9) <= row["bound_ns"] for row in measured)

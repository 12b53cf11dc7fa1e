"""Recoveries from kills of workers, agents and nodes, also while executors move: the answer is exact."""

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet
import pytest

from campaign.results.suspect_runs import doubts_from_recoveries

pytestmark = pytest.mark.loopback

TOLERANCE = 0.01
"""Relative error that figures of a run with recoveries may have."""

RUN = "001-wordcount-even-r1"
CHECKPOINT_S = 0.3


def checkpoint(workspace: Any) -> int:
    """Return the number of the last checkpoint of which the controller has copies, or 0."""
    folders = workspace.temporary.glob(f"millrace-*/{RUN}.1/.controller/copies/checkpoints/*")
    return max((int(folder.name) for folder in folders), default=0)


def wait_for_checkpoints(workspace: Any, count: int) -> None:
    """Wait for `count` further checkpoints."""
    wanted = checkpoint(workspace) + count
    workspace.wait_for(lambda: checkpoint(workspace) >= wanted, f"checkpoint {wanted}")


def events(workspace: Any) -> list[dict[str, Any]]:
    """Return the events of the controller in the traces."""
    rows = pyarrow.parquet.read_table(workspace.campaign / "runs" / RUN / "traces" / "event.parquet").to_pylist()
    return [row for row in rows if row["node"] == ""]


def traced_total(folder: Path, role: str, column: str) -> int:
    """Return the sum of a column of the throughput trace over executors of a role."""
    rows = pyarrow.parquet.read_table(folder / "traces" / "throughput.parquet").to_pylist()
    return sum(row[column] for row in rows if row["role"] == role)


def kill_node(workspace: Any, folder: Path) -> Path:
    """Kill a node's agent and workers while its folder disappears; return the new path of the folder."""
    agent = next(p for p in workspace.processes("agent") if Path(f"/proc/{p.pid}/cwd").readlink() == folder)
    node = [agent.pid, *(child.pid for child in psutil.Process(agent.pid).children(recursive=True))]
    # Stop them first: a worker that stores a checkpoint would recreate the folder, and the agent would start in it.
    for pid in node:
        os.kill(pid, signal.SIGSTOP)
    away = folder.rename(folder.with_name(".away"))
    for pid in node:
        os.kill(pid, signal.SIGKILL)
    return away


def conclude(workspace: Any, campaign: Any) -> dict[str, Any]:
    """Wait for the end; check the run and that nothing is left; return its metrics."""
    outcome = workspace.wait_for_end(campaign)
    assert outcome.status == 0, outcome
    (run,) = workspace.results().values()
    assert (run["status"], run["attempt"], run["verification"]["status"]) == ("ok", 1, "passed")
    assert not workspace.processes()
    assert not list(workspace.temporary.iterdir())
    return dict(run["measured"])


@pytest.mark.long
def test_killed_workers_and_agents_cost_time_and_no_tuple_while_executors_move(workspace: Any) -> None:
    timeline = [
        {"at_s": 1, "do": "move", "executor": "count[0]", "to": "n2/1"},
        {"at_s": 1, "do": "move", "executor": "spout[1]", "to": "n1"},
    ]
    # One word a line, so that the answer says how many lines there were.
    (workspace.folder / "text.txt").write_text("to\nbe\nor\nnot\n")
    params = {"text": "text.txt", "workers": 2, "ackers": 0, "parallelism": {"spout": 2, "split": 2, "count": 2}}
    workload = {"name": "wordcount", "params": params, "rate": {"kind": "constant", "tuples_per_s": 300}}
    changes = {"workloads": [workload], "timeline": timeline, "duration_s": 9, "checkpoint_s": CHECKPOINT_S}
    campaign = workspace.start("run", workspace.agenda(schedulers=["even"], **changes))
    workspace.wait_for_stage(1, "measuring")
    workspace.wait_for(lambda: len(workspace.workers()) == 3, "the worker for the executor that moves")
    wait_for_checkpoints(workspace, 2)
    os.kill(workspace.workers()[0].pid, signal.SIGKILL)
    wait_for_checkpoints(workspace, 2)
    os.kill(workspace.processes("agent")[0].pid, signal.SIGKILL)
    measured = conclude(workspace, campaign)
    assert [move["executor"] for move in measured["moves"]] == ["count[0]", "spout[1]"]
    assert [(move["from"], move["to"]) for move in measured["moves"]] == [("n1/0", "n2/1"), ("n2/0", "n1/0")]
    assert all(move["pause_s"] > 0 and move["state_bytes"] > 0 for move in measured["moves"])
    # Both moves are one change. A kill that follows soon leaves the topology no time to recover from it.
    (change,) = measured["revision_costs"]
    assert (change["number"], change["scripted"], change["moves"]) == (1, True, 2)
    assert change["begun_s"] == min(move["at_s"] for move in measured["moves"])
    assert change["pause_sum_s"] == pytest.approx(sum(move["pause_s"] for move in measured["moves"]))
    assert (change["recovered_s"] is None) == (change["net_loss_tuples"] is None) == bool(change["reason"])
    assert measured["means"]["whole_run"]["due_tuples_per_s"] == pytest.approx(300, rel=TOLERANCE)
    worker, agent = measured["recoveries"]
    assert "was killed by SIGKILL" in worker["cause"]
    assert worker["checkpoint"] > 0
    assert "the agent of n1 was killed by SIGKILL" in agent["cause"]
    assert agent["checkpoint"] > worker["checkpoint"]
    # Figures are those of an undisturbed run; on a slow machine they are marked incomplete, and the run is suspect.
    figures = [measured[f"{name}_tuples_per_s"] / 300 for name in ("source", "sink", "throughput")]
    figures.append(sum(measured["hops"].values()) / (2 * 300 * 9))
    assert measured["incomplete"] or figures == pytest.approx([1] * 4, rel=TOLERANCE), measured
    (run,) = workspace.results().values()
    assert workspace.suspect_reasons(run) == doubts_from_recoveries(measured["recoveries"], measured["incomplete"])
    # Every line is in the traces once as emitted; after a recovery, it counts as replayed. Only lines that workers had
    # recorded and the killed agent had not forwarded count as emitted twice: those of a second at most.
    folder = workspace.campaign / "runs" / RUN
    answer = pyarrow.parquet.read_table(folder / "answer" / "counts")
    for counted in (
        traced_total(folder, "spout", "emitted"),
        traced_total(folder, "bolt", "processed"),
        traced_total(folder, "sink", "processed"),
    ):
        assert 0 <= counted - sum(answer["count"].to_pylist()) <= 300
    kinds = Counter(event["kind"] for event in events(workspace))
    assert (kinds["move"], kinds["recovery"], kinds["checkpoint"]) == (2, 2, measured["checkpoints"])


@pytest.mark.long
def test_other_nodes_take_over_the_work_of_a_lost_node_which_may_return(workspace: Any) -> None:
    campaign = workspace.start("run", workspace.agenda(schedulers=["even"], duration_s=12, checkpoint_s=CHECKPOINT_S))
    workspace.wait_for_stage(1, "measuring")
    wait_for_checkpoints(workspace, 2)
    (folder,) = workspace.temporary.glob(f"millrace-*/{RUN}.1/n2")
    away = kill_node(workspace, folder)
    wait_for_checkpoints(workspace, 2)
    assert len(workspace.processes("agent")) == 1
    away.rename(folder)
    workspace.wait_for(lambda: len(workspace.processes("agent")) == 2, "the agent of the node that is back")
    measured = conclude(workspace, campaign)
    (recovery,) = measured["recoveries"]
    assert "the agent of n2 was killed by SIGKILL" in recovery["cause"]
    subjects = {event["kind"]: event["subject"] for event in events(workspace)}
    assert (subjects["node_lost"], subjects["node_returned"]) == ("n2", "n2")
    rows = pyarrow.parquet.read_table(workspace.campaign / "runs" / RUN / "traces" / "throughput.parquet").to_pylist()
    last = {row["executor"]: (row["t_ns"], row["node"]) for row in sorted(rows, key=lambda row: row["t_ns"])}
    assert {node for _, node in last.values()} == {"n1"}


NEVER_WITHOUT_A_NODE = """\
import scheduler.toolkit.slow_notice
from scheduler.algorithms.even import Even

scheduler.toolkit.slow_notice.NOTICE_S = 0.5
usual = Even.place

def place(self, problem):
    while not all(node.available for node in problem.cluster.nodes):
        pass
    return usual(self, problem)

Even.place = place
"""


@pytest.mark.long
def test_a_scheduler_that_hangs_after_a_node_loss_is_reported_and_ended_with_the_campaign(workspace: Any) -> None:
    agenda = workspace.agenda(schedulers=["even"], duration_s=60, checkpoint_s=CHECKPOINT_S)
    campaign = workspace.start("run", agenda, program=NEVER_WITHOUT_A_NODE + workspace.without_report)
    workspace.wait_for_stage(1, "measuring")
    (folder,) = workspace.temporary.glob(f"millrace-*/{RUN}.1/n2")
    kill_node(workspace, folder)
    output = [""]
    while "is still deciding" not in output[-1]:
        output.append(campaign.stderr.readline())
        assert output[-1], f"the campaign has ended: {output} {workspace.wait_for_end(campaign)} {workspace.results()}"
    assert output[-1] == "millrace: the scheduler 'even' is still deciding, Ctrl-C ends it\n"
    for _ in range(2):
        campaign.send_signal(signal.SIGINT)
        output.append(campaign.stderr.readline())
    assert output[-1] == "stopping now\n"
    assert workspace.wait_for_end(campaign).status == 130
    workspace.wait_until_no_process()
    assert not list(workspace.temporary.iterdir())

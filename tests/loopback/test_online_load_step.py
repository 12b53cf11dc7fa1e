"""A step of the rate in a real run: `er-stream` moves an executor off the overloaded node in two windows and a second.

Loads of loopback nodes are those of their own processes, and change little with other processes of the host. Nodes and
work are small, so that barriers pass in time also on a busy host.
"""

from typing import Any

import pytest
from decision_log import decisions

pytestmark = [pytest.mark.loopback, pytest.mark.long]

STEP_S, BEFORE_PER_S, AFTER_PER_S = 8.0, 10, 25
WINDOW_S = 3
BUSY_HOST_S = 2.0
"""Additional delay on a busy host."""

BOUND = 0.125
"""The overloaded node has a load of about 0.085 before the step, 0.2 after it and 0.11 without the moved executor."""

RUN = "001-linear-er-stream-r1"
CLUSTER = """\
nodes:
  - {id: n1, address: 127.0.0.2, slots: 2, cores: 2, cpu: 50, capacity: 3}
  - {id: n2, address: 127.0.0.3, slots: 2, cores: 8, cpu: 200, capacity: 3}
  - {id: n3, address: 127.0.0.4, slots: 2, cores: 8, cpu: 200, capacity: 3}
"""


@pytest.fixture(scope="module")
def raced(shared_workspace: Any) -> Any:
    """Workspace with a finished campaign of one run."""
    (shared_workspace.folder / "three.yaml").write_text(CLUSTER)
    params = {"operators": 3, "tasks": 2, "workers": 3, "cost_us": 3000}
    rules = {"window_s": WINDOW_S, "first_s": 4, "ask_s": 3, "revision": {"settle_s": 1}}
    agenda = shared_workspace.agenda(
        inventory="three.yaml",
        warmup_s=1,
        duration_s=28,
        checkpoint_s=2,
        workloads=[
            {"name": "linear", "params": params, "rate": {"kind": "constant", "tuples_per_s": BEFORE_PER_S}},
        ],
        schedulers=[{"name": "er-stream", "params": {"B": BOUND}, "online": rules}],
        timeline=[{"at_s": STEP_S, "do": "rate", "tuples_per_s": AFTER_PER_S}],
    )
    outcome = shared_workspace.run("run", agenda)
    assert outcome.status == 0, outcome
    return shared_workspace


def test_an_executor_moves_within_two_windows_and_a_second_and_its_node_is_no_longer_overloaded(raced: Any) -> None:
    run = raced.results()[RUN]
    assert (run["status"], run["verification"]["status"]) == ("ok", "passed")
    log = decisions(raced.campaign / "runs" / RUN)
    revision, *_ = [each for each in run["measured"]["revisions"] if each["outcome"] != "no"]
    assert (revision["outcome"], revision["reason"], revision["moves"]) == ("done", "overload", 1)
    assert STEP_S < revision["begun_s"] <= STEP_S + 2 * WINDOW_S + 1 + BUSY_HOST_S
    (decision,) = [each for each in log if each["number"] == revision["number"]]
    (move,) = decision["answer"]["revision"]["moves"]
    source = move["from"]["node"]
    assert decision["observation"]["nodes"][source]["load"] > BOUND
    # If the load is a little higher than planned, a second executor is moved.
    ended_s = max(each["ended_s"] or 0 for each in run["measured"]["revisions"])
    *_, last = [each["observation"] for each in log if each["observation"]["since_s"] >= ended_s]
    assert last["complete"]
    assert last["executors"][move["executor"]]["node"] == move["to"]["node"]
    assert last["source"]["due_per_s"] == pytest.approx(AFTER_PER_S, rel=0.1)
    assert max(node["load"] for node in last["nodes"].values()) < BOUND
    assert revision["before"]["load"] > BOUND


def test_the_rate_that_is_due_is_observed_before_and_after_the_step(raced: Any) -> None:
    observations = [each["observation"] for each in decisions(raced.campaign / "runs" / RUN)]
    before = [each["source"]["due_per_s"] for each in observations if each["at_s"] <= STEP_S]
    after = [each["source"]["due_per_s"] for each in observations if each["since_s"] >= STEP_S + 1]
    assert before == pytest.approx([BEFORE_PER_S] * len(before), rel=0.1)
    assert after == pytest.approx([AFTER_PER_S] * len(after), rel=0.1)
    assert (bool(before), bool(after)) == (True, True)


def test_a_replay_repeats_its_decisions_exactly(raced: Any) -> None:
    again = raced.run("revise", "--replay", str(raced.campaign / "runs" / RUN / "decisions.jsonl"))
    assert again.status == 0, again
    assert "overload" in again.out

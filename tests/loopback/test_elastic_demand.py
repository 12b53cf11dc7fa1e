"""`ds2` in a real run whose rate doubles: it adds executors to the components that need them, and then stops.

It decides by CPU time. All executors together need a fifth of a core, which they also get on a busy host.
"""

from typing import Any

import pytest
from decision_log import decisions

pytestmark = [pytest.mark.loopback, pytest.mark.long]

STEP_S, WINDOW_S, DURATION_S, RATE, COST_US = 6.0, 3, 28, 20, 2500
TARGET = 0.075
"""A bolt needs 0.05 of a core before the step and 0.1 after it."""

RUN = "001-linear-ds2-r1"


@pytest.fixture(scope="module")
def raced(shared_workspace: Any) -> Any:
    """Workspace with a finished campaign of one run."""
    online = {"window_s": WINDOW_S, "first_s": WINDOW_S, "ask_s": WINDOW_S, "revision": {"settle_s": 1}}
    agenda = shared_workspace.agenda(
        warmup_s=1,
        duration_s=DURATION_S,
        checkpoint_s=2,
        workloads=[
            {
                "name": "linear",
                "params": {"operators": 3, "tasks": 1, "workers": 1, "cost_us": COST_US},
                "rate": {"kind": "constant", "tuples_per_s": RATE},
            },
        ],
        schedulers=[{"name": "ds2", "params": {"target": TARGET}, "online": online}],
        timeline=[{"at_s": STEP_S, "do": "rate", "tuples_per_s": 2 * RATE}],
        sensors=["cpu"],
    )
    outcome = shared_workspace.run("run", agenda)
    assert outcome.status == 0, outcome
    return shared_workspace


def test_bolts_get_the_executors_that_the_doubled_rate_needs_in_three_steps(raced: Any) -> None:
    run = raced.results()[RUN]
    assert (run["status"], run["verification"]["status"]) == ("ok", "passed"), run["reason"]
    scalings = run["measured"]["scalings"]
    # On a busy host, where tuples take more CPU time, one of them may have been scaled before the step.
    assert {each["component"] for each in scalings} == {"op1", "sink"}
    assert {each["how"] for each in scalings} == {"live"}
    after_step = [each for each in scalings if each["at_s"] > STEP_S]
    assert after_step
    revisions = {each["revision"] for each in after_step}
    assert len(revisions) <= 3
    log = decisions(raced.campaign / "runs" / RUN)
    needed = {
        name: entry["wanted"]
        for each in log
        if each["number"] in revisions
        for name, entry in each["answer"]["details"]["components"].items()
    }
    *_, last = [each["observation"] for each in log if each["observation"]["complete"]]
    sizes = {name: sum(executor.startswith(f"{name}[") for executor in last["executors"]) for name in ("op1", "sink")}
    assert sizes == {name: needed[name] for name in sizes}
    assert min(sizes.values()) > 1
    assert last["source"]["emitted_per_s"] == pytest.approx(2 * RATE, rel=0.05)

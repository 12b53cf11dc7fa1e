"""The online scheduler of the page "Add a scheduler" runs live in a campaign, here in a faster rhythm than its own."""

from pathlib import Path
from typing import Any

import pytest
from decision_log import decisions, outcomes
from package_install import install_guide

pytestmark = [pytest.mark.loopback, pytest.mark.long]

PAGE = Path(__file__).parents[2] / "docs" / "add-a-scheduler.md"
CLUSTER = """\
nodes:
  - {id: n1, address: 127.0.0.2, slots: 1, cores: 1, cpu: 4}
  - {id: n2, address: 127.0.0.3, slots: 1, cores: 4}
"""


def test_the_scheduler_moves_the_busiest_executor_of_an_overloaded_node(workspace: Any, tmp_path: Path) -> None:
    work = tmp_path / "guide"
    work.mkdir()
    workspace.packages.append(install_guide(PAGE.read_text(), work))
    (workspace.folder / "small.yaml").write_text(CLUSTER)
    changes: dict[str, Any] = {
        "inventory": "small.yaml",
        "duration_s": 17,
        "workloads": [
            {
                "name": "linear",
                "params": {"operators": 3, "tasks": 1, "workers": 1, "cost_us": 3000},
                "rate": {"kind": "constant", "tuples_per_s": 20},
            }
        ],
    }
    own = {"duration_s": 44, "schedulers": [{"name": "unloader", "online": {}}]}
    planned = workspace.run("run", workspace.agenda(**changes | own), "--dry-run")
    assert "asked first at 30 s, then every 10 s" in planned.out, planned
    fast = {"window_s": 4, "first_s": 6, "ask_s": 4}
    outcome = workspace.run("run", workspace.agenda(**changes, schedulers=[{"name": "unloader", "online": fast}]))
    assert outcome.status == 0, outcome
    ((name, run),) = workspace.results().items()
    assert (run["status"], run["verification"]["status"]) == ("ok", "passed")
    first, *later = (each["observation"] for each in decisions(workspace.campaign / "runs" / name))
    assert 6 <= first["at_s"] < 8
    assert first["at_s"] - first["since_s"] == pytest.approx(4, abs=0.5)
    assert all(observation["at_s"] >= first["at_s"] + 3 for observation in later)
    assert first["nodes"]["n1"]["load"] > 0.9
    assert outcomes(run)[0] == "done"
    (move, *_) = run["measured"]["moves"]
    busy = {executor: each["busy"] for executor, each in first["executors"].items()}
    assert (move["from"], move["to"], busy[move["executor"]]) == ("n1/0", "n2/0", max(busy.values()))

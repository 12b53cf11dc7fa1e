"""Errors of operators reach terminal, logs and results as one bounded line; only the user may write the results.

The campaign runs with a umask that lets everybody write.
"""

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from inventory.foreign import MOST

pytestmark = pytest.mark.loopback

HOSTILE = "\x1b]0;title\x07\x9b2J\nrun 1/1 001-rude-even-r1 ok in 5 s"

RUDE = f"""
from workloads.apps.exclamation import Exclaim, Exclamation


class RudeBolt(Exclaim):
    def process(self, batch):
        raise ValueError({HOSTILE!r} * 400_000)


class Rude(Exclamation):
    name = "rude"

    def operator(self, component):
        return RudeBolt() if component == "exclaim1" else super().operator(component)
"""

OPEN_TO_ALL = "import os; os.umask(0)\n"

CONTROL_CHARACTERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def entry(name: str) -> dict[str, Any]:
    params = {"workers": 2, "ackers": 0, "parallelism": {"word": 1, "exclaim1": 1, "exclaim2": 1}}
    return {"name": name, "params": params, "rate": {"kind": "constant", "tuples_per_s": 300}}


@pytest.fixture
def outcome(workspace: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    site = tmp_path / "site"
    information = site / "rude-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: rude\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[millrace.workloads]\nrude = rude:Rude\n")
    (site / "rude.py").write_text(RUDE)
    monkeypatch.setenv("PYTHONPATH", str(site))
    agenda = workspace.agenda(workloads=[entry("rude"), entry("exclamation")], schedulers=["even"], checkpoint_s=0)
    return workspace.run("run", agenda, program=OPEN_TO_ALL + workspace.without_report)


@pytest.mark.long
def test_errors_of_operators_are_bounded_without_control_characters_and_results_are_not_world_writable(
    workspace: Any, outcome: Any
) -> None:
    assert outcome.status == 1, outcome
    lines = outcome.err.splitlines()
    assert not CONTROL_CHARACTERS.search(outcome.err + outcome.out)
    # The line break in the error begins no line; only the other run is reported as ok.
    assert len([line for line in lines if re.match(r"run \d/\d \S+ ok in", line)]) == 1
    assert max(map(len, lines)) <= MOST
    (rude,) = (run for name, run in workspace.results().items() if "rude" in name)
    assert rude["status"] == "failed"
    assert len(rude["reason"]) <= MOST
    assert "ValueError: \\x1b]0;title\\x07\\x9b2J\\nrun 1/1" in rude["reason"]
    assert "; log: logs/attempt-1" in rude["reason"]
    files = [path for path in workspace.campaign.rglob("*") if not path.is_symlink()]
    logs = [path for path in files if path.suffix == ".log" and path.is_file()]
    assert logs
    for path in logs:
        assert not CONTROL_CHARACTERS.search(path.read_text(encoding="utf-8")), path
        assert path.stat().st_size < 100_000
    assert any(path.suffix == ".parquet" for path in files)
    assert not [path for path in [workspace.campaign, *files] if path.stat().st_mode & stat.S_IWOTH]
    assert len(json.dumps(rude)) < 50_000

"""The tutorial's section on comparing schedulers: its files, its commands and its numbers."""

import json
import re
import shlex
from pathlib import Path

import pytest

from campaign.commands.main import run
from inventory.documents import parse_document
from workloads.topology import topology_of
from workloads.workload import load_workload

ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
SECTION = TUTORIAL.split("## Compare schedulers without a cluster\n")[1].split("\n## ")[0]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```yaml\n(.*?)```", SECTION, re.DOTALL)
    for name, text in zip(re.findall(r"as `(\w+\.yml)`", SECTION), blocks, strict=True):
        Path(name).write_text(text)


def _commands() -> list[list[str]]:
    found = re.findall(r"^\.venv/bin/millrace (.*)$", SECTION, re.MULTILINE)
    return [shlex.split(command) for command in found]


def test_the_table_is_the_output_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    compare, _ = _commands()
    assert run(compare) == 0
    out = capsys.readouterr().out
    wanted = [line.strip("|").split("|") for line in SECTION.splitlines() if re.match(r"\| [a-z-]+ \| +\d", line)]
    assert len(wanted) == 4
    for row in wanted:
        cells = [cell.strip() for cell in row]
        (line,) = [line for line in out.splitlines() if line.split()[:1] == cells[:1]]
        assert line.split()[: len(cells)] == cells
    picture = ROOT / "docs" / "images" / "placement.svg"
    assert Path("placements/optimal.svg").read_bytes() == picture.read_bytes()


def test_the_explanation_is_the_output_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    _, explain = _commands()
    assert run([*explain, "--json"]) == 0
    account = json.loads(capsys.readouterr().out)["account"]
    assert (account["w"], account["least"]["optimum"]) == (54, 172)
    assert max((node["executors"], node["capacity"]) for node in account["nodes"]) == (28, 12)
    assert run(explain) == 0
    assert "node of each of these slots: n1, n1, n1, n1, n2" in capsys.readouterr().out


def test_the_topology_of_the_demo_has_the_executors_of_the_run() -> None:
    text = TUTORIAL.split("## Place by what was measured\n")[1].split("```yaml\n")[1].split("```")[0]
    assert topology_of(parse_document(text)).value.executors == load_workload("wordcount", {}).topology().executors

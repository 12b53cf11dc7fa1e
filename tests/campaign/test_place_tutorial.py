"""The tutorial's section on comparing schedulers: its files, its commands and its table."""

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


def test_the_commands_work_and_the_table_is_the_output_of_the_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    compare, explain = _commands()
    assert run(explain) == 0
    capsys.readouterr()
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


def test_the_topology_of_the_demo_has_the_executors_of_the_run() -> None:
    text = TUTORIAL.split("## Place by what was measured\n")[1].split("```yaml\n")[1].split("```")[0]
    assert topology_of(parse_document(text)).value.executors == load_workload("wordcount", {}).topology().executors

"""The page "Add a scheduler" is complete: what it shows is installed as it says, listed, and places."""

import json
import re
from pathlib import Path

import pytest
from installing import install, millrace

from millrace import __all__ as millrace_names

GUIDE = (Path(__file__).parents[2] / "docs" / "add-a-scheduler.md").read_text()
CLUSTER = """
nodes:
  - {id: n1, rack: b, slots: 1}
  - {id: n2, rack: a, slots: 1}
  - {id: n3, rack: a, slots: 1}
existing: [{topology: other, node: n2, slot: 0}]
"""
TOPOLOGY = "{id: t, workers: 2, components: [{id: a, kind: spout, parallelism: 3}]}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The guide's package, built from what stands on the page."""
    work = tmp_path_factory.mktemp("guide")
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    (registration,) = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
    module = re.search(r'= "(\w+):', registration)
    assert module is not None
    project = work / "project"
    project.mkdir()
    (project / f"{module[1]}.py").write_text(code)
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "guide"\nversion = "1"\n'
        f'{registration}\n[tool.hatch.build.targets.wheel]\ninclude = ["{module[1]}.py"]\n'
    )
    return install(project, work)


def test_the_example_is_about_twenty_lines() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 22


def test_it_is_listed(site: Path) -> None:
    entries = {entry["name"]: entry for entry in json.loads(millrace("list", "schedulers", "--json", path=site).stdout)}
    assert entries["rack-by-rack"]["error"] is None
    assert entries["rack-by-rack"]["ignores"] == "load, traffic, hardware"


def test_it_places_rack_by_rack(site: Path, tmp_path: Path) -> None:
    (tmp_path / "c.yml").write_text(CLUSTER)
    (tmp_path / "t.yml").write_text(TOPOLOGY)
    done = millrace(
        "place", "--cluster", "c.yml", "--topology", "t.yml", "--scheduler", "rack-by-rack", "--json",
        path=site, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    placed = json.loads(done.stdout)["topologies"]["t"]
    assert placed["status"] == "placed"
    assert [(a["executor"], a["node"]) for a in placed["assignments"]] == [
        ("a[0]", "n3"),
        ("a[1]", "n1"),
        ("a[2]", "n3"),
    ]


def test_it_passes_its_check(site: Path) -> None:
    done = millrace("check", "scheduler", "rack-by-rack", "--json", path=site)
    assert [check for check in json.loads(done.stdout)["checks"] if not check["ok"]] == []
    assert done.returncode == 0


def test_without_a_free_slot_it_answers_with_its_reason(site: Path, tmp_path: Path) -> None:
    (tmp_path / "c.yml").write_text("nodes: [{id: n1, slots: 0}]")
    (tmp_path / "t.yml").write_text(TOPOLOGY)
    done = millrace(
        "place", "--cluster", "c.yml", "--topology", "t.yml", "--scheduler", "rack-by-rack", "--json",
        path=site, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    placed = json.loads(done.stdout)["topologies"]["t"]
    assert (placed["status"], placed["message"]) == ("failed", "no free slot")


def test_what_the_page_names_exists() -> None:
    rows = re.findall(r"^\| (`.*`) \|", GUIDE.split("| from `millrace` |", 1)[1], re.MULTILINE)
    named = set(re.findall(r"`(\w+)`", " ".join(rows[: rows.index("`interface`")])))
    assert named
    assert named <= set(millrace_names)

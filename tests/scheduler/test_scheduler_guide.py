"""The page "Add a scheduler": its examples can be installed as described, are listed, and work."""

import json
import re
from pathlib import Path

import pytest
from package_install import install_guide, millrace

from millrace import __all__ as millrace_names

GUIDE = (Path(__file__).parents[2] / "docs" / "add-a-scheduler.md").read_text()
CODE = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
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
    """The guide's package, built from the code on the page."""
    return install_guide(GUIDE, tmp_path_factory.mktemp("guide"))


def test_the_example_is_about_twenty_lines() -> None:
    assert len([line for line in CODE[0].splitlines() if line.strip()]) <= 22


def test_it_is_listed(site: Path) -> None:
    entries = {entry["name"]: entry for entry in json.loads(millrace("list", "schedulers", "--json", path=site).stdout)}
    assert entries["rack-by-rack"]["error"] is None
    assert entries["rack-by-rack"]["ignores"] == "load, traffic, hardware"


def test_it_places_rack_by_rack(site: Path, tmp_path: Path) -> None:
    (tmp_path / "c.yml").write_text(CLUSTER)
    (tmp_path / "t.yml").write_text(TOPOLOGY)
    process = millrace(
        "place", "--cluster", "c.yml", "--topology", "t.yml", "--scheduler", "rack-by-rack", "--json",
        path=site, cwd=tmp_path,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    placed = json.loads(process.stdout)["topologies"]["t"]
    assert placed["status"] == "placed"
    assert [(a["executor"], a["node"]) for a in placed["assignments"]] == [
        ("a[0]", "n3"),
        ("a[1]", "n1"),
        ("a[2]", "n3"),
    ]


def test_it_passes_its_check(site: Path) -> None:
    process = millrace("check", "scheduler", "rack-by-rack", "--json", path=site)
    assert [check for check in json.loads(process.stdout)["checks"] if not check["ok"]] == []
    assert process.returncode == 0


def test_without_a_free_slot_it_fails_with_a_message(site: Path, tmp_path: Path) -> None:
    (tmp_path / "c.yml").write_text("nodes: [{id: n1, slots: 0}]")
    (tmp_path / "t.yml").write_text(TOPOLOGY)
    process = millrace(
        "place", "--cluster", "c.yml", "--topology", "t.yml", "--scheduler", "rack-by-rack", "--json",
        path=site, cwd=tmp_path,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    placed = json.loads(process.stdout)["topologies"]["t"]
    assert (placed["status"], placed["message"]) == ("failed", "no free slot")


def test_names_on_the_page_exist() -> None:
    rows = re.findall(r"^\| (`.*`) \|", GUIDE.split("| from `millrace` |", 1)[1], re.MULTILINE)
    named = set(re.findall(r"`(\w+)`", " ".join(rows[: rows.index("`interface`")])))
    assert named
    assert named <= set(millrace_names)


def test_the_online_one_moves_the_busiest_executor_of_an_overloaded_node(site: Path, tmp_path: Path) -> None:
    (tmp_path / "c.yml").write_text(CLUSTER.replace("slots: 1", "slots: 2"))
    (tmp_path / "t.yml").write_text(TOPOLOGY)
    executors = {
        f"a[{at}]": {"node": "n1", "slot": 0, "busy": load, "load": load} for at, load in enumerate((100, 200, 80))
    }
    nodes = {"n1": {"load": 0.95, "base": 0.0}, "n2": {"load": 0.1, "base": 0.0}, "n3": {"load": 0.2, "base": 0.0}}
    observation = {"at_s": 30, "since_s": 20, "samples": 10, "executors": executors, "nodes": nodes}
    (tmp_path / "o.json").write_text(json.dumps(observation))
    process = millrace(
        "revise", "--cluster", "c.yml", "--topology", "t.yml", "--observation", "o.json", "--scheduler", "unloader",
        path=site, cwd=tmp_path,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines() == ["30 s: overload: n1 is overloaded", "  a[1]: n1/0 -> n2/1"]

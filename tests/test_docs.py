"""The documentation says what the code says: commands, keys, tables, dependencies, links."""

import re
import runpy
import tomllib
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from agents.trace import TABLES
from campaign.commands.main import run
from inventory.cluster import Cluster, ExistingWorker, Facts, Network, Node
from inventory.energy_model import EnergyModel
from scheduler.cost import Cost
from scheduler.explain import Explanation
from scheduler.explain.cut_links import CutLink, CutPair
from scheduler.explain.lower_bound import LowerBound
from scheduler.explain.node_load import NodeLoad
from scheduler.placement_file import Assignment, Migration, NodeEntry, PlacementFile, TopologyPlacement
from scheduler.problem import CommunicationSchedule
from workloads.topology import Component, Constraints, GroupingKind, Input, Topology
from workloads.traffic import Edge, Traffic

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def _words(text: str) -> set[str]:
    """What stands in backticks or in a block of code."""
    quoted = re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL)
    return set(re.findall(r"[\w-]+", " ".join(quoted)))


def _section(page: str, heading: str) -> str:
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    assert found, f"there is no section {heading!r}"
    return found.group(1)


def test_the_command_lines_reference_is_what_help_says() -> None:
    script = DOCS / "reference" / "make_cli.py"
    page = runpy.run_path(str(script))["page"]()
    assert (DOCS / "reference" / "cli.md").read_text() == page, f"run: .venv/bin/python {script.relative_to(ROOT)}"


@pytest.mark.parametrize(
    "name", sorted(re.findall(r"^## millrace ([\w-]+)$", (DOCS / "reference/cli.md").read_text(), re.MULTILINE))
)
def test_every_command_shows_an_example(name: str) -> None:
    assert (
        f"millrace {name}"
        in _section((DOCS / "reference/cli.md").read_text(), f"millrace {name}").split("xample", 1)[1]
    )


@pytest.mark.parametrize(
    ("section", "kinds"),
    [
        ("Cluster", [Cluster, Node, Network, ExistingWorker, Facts, EnergyModel]),
        ("Topology", [Topology, Component, Input, Constraints]),
        ("Traffic", [Traffic, Edge]),
        (
            "Placement",
            [PlacementFile, TopologyPlacement, Assignment, NodeEntry, CommunicationSchedule, Migration, Cost],
        ),
        ("Placement", [Explanation, NodeLoad, CutLink, CutPair, LowerBound]),
    ],
)
def test_every_key_of_a_file_is_documented(section: str, kinds: list[type[msgspec.Struct]]) -> None:
    told = _words(_section((DOCS / "reference" / "files.md").read_text(), section))
    keys = {field.encode_name for kind in kinds for field in msgspec.structs.fields(kind)}
    assert keys - told == set()


def test_every_grouping_is_documented() -> None:
    assert set(get_args(GroupingKind)) <= _words(_section((DOCS / "reference" / "files.md").read_text(), "Topology"))


@pytest.mark.parametrize("table", sorted(TABLES))
def test_every_column_of_a_trace_is_documented_and_no_other(table: str) -> None:
    page = (DOCS / "reference" / "traces.md").read_text()
    rows = re.findall(r"^\| (`.*?) \|", _section(page, table), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == set(TABLES[table].names[4:])
    assert set(TABLES[table].names[:4]) == set(re.findall(r"^\| `(\w+)` \|", page.split("\n## ")[0], re.MULTILINE))


def test_every_dependency_is_given_a_reason() -> None:
    page = (DOCS / "dependencies.md").read_text()
    project = PYPROJECT["project"]
    lists = {
        "On every node": project["dependencies"],
        "On the controller: extra `controller`": project["optional-dependencies"]["controller"],
        "For development: extra `dev`": project["optional-dependencies"]["dev"],
        "For set-up": [
            line
            for name in ("build", "java")
            for line in (ROOT / "requirements" / f"{name}.in").read_text().splitlines()
            if line and not line.startswith("#")
        ],
    }
    for heading, wanted in lists.items():
        rows = re.findall(r"^\| `([\w-]+)` \| (.+) \| (.+) \|$", _section(page, heading), re.MULTILINE)
        assert {name for name, _, _ in rows} == {re.split(r"[<>=]", line)[0] for line in wanted}


PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "benchmarks").rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_inside_the_house_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_page_is_reached_from_the_index() -> None:
    index = (DOCS / "index.md").read_text()
    linked = {(DOCS / target).resolve() for target in re.findall(r"\]\(([^)#]+)\)", index)}
    pages = {page.resolve() for page in DOCS.rglob("*.md") if page.name != "index.md"}
    assert pages - linked == set()


def test_the_citation_names_this_version_and_licence() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    project = PYPROJECT["project"]
    assert f"\nversion: {project['version']}\n" in citation
    assert f"\nlicense: {project['license']}\n" in citation


def test_the_tutorial_says_where_the_demo_places_word_count(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "demo", "--dry-run"]) == 0
    planned = capsys.readouterr().out
    told = " ".join((DOCS / "tutorial.md").read_text().split())
    words = {"2": "two", "5": "five"}
    for scheduler, sentence in (("even", "Even uses all {}"), ("top-storm", "TOP-Storm uses {}")):
        found = re.search(
            rf"wordcount by {scheduler}(?: \(not given: traffic\))?: (\d+) nodes, \d+ slots, (\d+) executor pairs",
            planned,
        )
        assert found
        assert sentence.format(words[found[1]]) + " nodes, and " + found[2] in told


def test_every_folder_of_the_code_is_on_the_map() -> None:
    packages = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    folders = {path.parent.relative_to(ROOT).as_posix() for name in packages for path in (ROOT / name).rglob("*.py")}
    mapped = set(re.findall(r"^\| `([\w/]+)/` \|", (DOCS / "architecture.md").read_text(), re.MULTILINE))
    assert mapped == folders


def test_tests_that_pages_name_are_there() -> None:
    pages = [*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    named = {name for page in pages for name in re.findall(r"\btest_[a-z0-9_]+\.py", page.read_text())}
    assert named - {path.name for path in (ROOT / "tests").rglob("test_*.py")} == set()

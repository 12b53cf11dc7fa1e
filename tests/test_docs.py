"""The documentation agrees with the code: commands, keys, tables, dependencies, links."""

import re
import runpy
import tomllib
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from agents.collected_traces import TABLES
from inventory.cluster import Cluster, ExistingWorker, Facts, Network, Node
from inventory.values import EnergyModel
from scheduler.explain.explanation import CutLink, CutPair, Explanation, LowerBound, NodeLoad
from scheduler.placement_file import ExecutorSlot, NodeEntry, PlacementFile, PlannedMove, TopologyPlacement
from scheduler.problem import CommunicationSchedule
from scheduler.toolkit.cost import Cost
from workloads.topology import Component, Constraints, GroupingKind, Input, Topology
from workloads.traffic import Edge, Traffic

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def _words(text: str) -> set[str]:
    """Return the words in backticks or code blocks."""
    quoted = re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL)
    return set(re.findall(r"[\w-]+", " ".join(quoted)))


def _section(page: str, heading: str) -> str:
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    assert found, f"there is no section {heading!r}"
    return found.group(1)


DEMO = runpy.run_path(str(DOCS / "tools" / "make_demo.py"))


def test_numbers_and_pictures_of_the_demo_are_those_of_the_stored_run() -> None:
    texts, update = DEMO["texts"](), "run: .venv/bin/python docs/tools/make_demo.py"
    for page in DEMO["PAGES"]:
        written = page.read_text()
        assert "<!-- demo: " in written
        assert DEMO["filled"](written, texts) == written, update
    for path, drawn in DEMO["pictures"]().items():
        assert path.read_text() == drawn, update


def test_no_rate_in_the_readme_is_typed_by_hand() -> None:
    page = re.sub(r"<!-- demo: .*?<!-- end of demo -->", "", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert re.findall(r"\d[\d,.]* (?:%|tuples|J|W|ms)\b", page) == []


def test_every_command_shows_an_example() -> None:
    texts = runpy.run_path(str(DOCS / "reference" / "make_cli.py"))["help_texts"]()
    assert len(texts) > 20
    assert [name for name, text in texts.items() if name not in text.partition("xample")[2]] == []


@pytest.mark.parametrize(
    ("section", "kinds"),
    [
        ("Cluster", [Cluster, Node, Network, ExistingWorker, Facts, EnergyModel]),
        ("Topology", [Topology, Component, Input, Constraints]),
        ("Traffic", [Traffic, Edge]),
        (
            "Placement",
            [PlacementFile, TopologyPlacement, ExecutorSlot, NodeEntry, CommunicationSchedule, PlannedMove, Cost],
        ),
        ("Placement", [Explanation, NodeLoad, CutLink, CutPair, LowerBound]),
    ],
)
def test_every_key_of_a_file_is_documented(section: str, kinds: list[type[msgspec.Struct]]) -> None:
    documented = _words(_section((DOCS / "reference" / "files.md").read_text(), section))
    keys = {field.encode_name for kind in kinds for field in msgspec.structs.fields(kind)}
    assert keys - documented == set()


def test_every_grouping_is_documented() -> None:
    assert set(get_args(GroupingKind)) <= _words(_section((DOCS / "reference" / "files.md").read_text(), "Topology"))


@pytest.mark.parametrize("table", sorted(TABLES))
def test_columns_of_a_trace_are_documented_in_their_order(table: str) -> None:
    page = (DOCS / "reference" / "traces.md").read_text()
    rows = re.findall(r"^\| (`.*?) \|", _section(page, table), re.MULTILINE)
    assert re.findall(r"`(\w+)`", " ".join(rows)) == list(TABLES[table].names[4:])
    assert set(TABLES[table].names[:4]) == set(re.findall(r"^\| `(\w+)` \|", page.split("\n## ")[0], re.MULTILINE))


def test_every_dependency_is_given_a_reason() -> None:
    page = (DOCS / "dependencies.md").read_text()
    project = PYPROJECT["project"]
    lists = {
        "On every node": project["dependencies"],
        "On the controller: extra `controller`": project["optional-dependencies"]["controller"],
        "For development: extra `dev`": project["optional-dependencies"]["dev"],
        "For the documentation site: extra `docs`": project["optional-dependencies"]["docs"],
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


# Benchmarks keep their peers in hidden folders.
BENCHMARK_PAGES = [*(ROOT / "benchmarks").glob("*.md"), *(ROOT / "benchmarks").glob("[!.]*/[!.]*.md")]
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *BENCHMARK_PAGES])


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_between_pages_have_a_target(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target


SITE = runpy.run_path(str(DOCS / "tools" / "make_site.py"))


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    listed = [page for pages in SITE["navigation"]().values() for page in pages.values()]
    assert sorted(listed) == [page for page in PAGES if page not in (SITE["START"], SITE["INDEX"])]


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_lists_and_tables_begin_after_a_blank_line(page: Path) -> None:
    """Check for the blank line; without it the site shows a paragraph, unlike other renderers."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    assert re.findall(r"^(?!\s|[-*|#]|\d+\. ).+\n(?=(?:[-*]|\d+\.) |\|)(.*)", text, re.MULTILINE) == []


def test_dead_links_of_the_site_are_found(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(
        """<h2 id="here">Here</h2> <a href="#here">1</a> <a href="other.html#there">2</a> <a href="https://a.test/">3</a>
        <a href="#gone">4</a> <a href="other.html#gone">5</a> <a href="gone.html">6</a> <a href="./">7</a>
        <img src="gone.svg"> <img src="//a.test/b.svg"> <script src="https://a.test/c.js"></script>
        <link rel="stylesheet" href="https://a.test/d.css"> <link rel="canonical" href="https://a.test/page.html">"""
    )
    (tmp_path / "other.html").write_text('<h2 id="there">There</h2>')
    assert SITE["faults"](tmp_path) == [
        "page.html: loads //a.test/b.svg",
        "page.html: loads https://a.test/c.js",
        "page.html: loads https://a.test/d.css",
        "page.html: #gone has no such heading",
        "page.html: other.html#gone has no such heading",
        "page.html: gone.html is not there",
        "page.html: ./ is not there",
        "page.html: gone.svg is not there",
    ]


def test_the_citation_names_this_version_and_licence() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    project = PYPROJECT["project"]
    assert f"\nversion: {project['version']}\n" in citation
    assert f"\nlicense: {project['license']}\n" in citation


def test_every_folder_of_the_code_is_in_the_architecture_page() -> None:
    packages = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    folders = {path.parent.relative_to(ROOT).as_posix() for name in packages for path in (ROOT / name).rglob("*.py")}
    mapped = set(re.findall(r"^\| `([\w/]+)/` \|", (DOCS / "architecture.md").read_text(), re.MULTILINE))
    assert mapped == folders


def test_test_files_that_pages_name_exist() -> None:
    pages = [*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    named = {name for page in pages for name in re.findall(r"\btest_[a-z0-9_]+\.py", page.read_text())}
    assert named - {path.name for path in (ROOT / "tests").rglob("test_*.py")} == set()

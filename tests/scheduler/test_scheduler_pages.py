"""Pages of schedulers agree with the installed schedulers; their pictures and tables are those of their programs."""

import re
import runpy
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from scheduler.registry import GROUP, computing_schedulers, scheduler_class

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "schedulers"
NAMES = sorted(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][GROUP])
ROWS = dict(re.findall(r"^\| \[?`([\w-]+)`\S* \| (.*) \|$", (PAGES / "index.md").read_text(), re.MULTILINE))
COMPARED = (PAGES / "comparison.md").read_text()
IMAGES, COMPARISON = PAGES / "make_images.py", ROOT / "benchmarks" / "compare_cases.py"
UPDATE_IMAGES, UPDATE_COMPARISON = (
    f"run: .venv/bin/python {program.relative_to(ROOT)}" for program in (IMAGES, COMPARISON)
)


def test_every_scheduler_is_listed_and_every_page_linked() -> None:
    assert sorted(ROWS) == NAMES
    linked = set(re.findall(r"\(([\w-]+\.md)\)", (PAGES / "index.md").read_text()))
    assert {f"{name}.md" for name in NAMES if (PAGES / f"{name}.md").exists()} <= linked


@pytest.mark.parametrize("name", NAMES)
def test_the_list_says_what_a_scheduler_needs(name: str) -> None:
    needs = scheduler_class(name).needs
    kind = ("online" if needs.online else "static") + (", needs observed traffic" * (needs.traffic == "required"))
    assert ROWS[name].startswith(f"{kind} | ")


@pytest.mark.parametrize("name", ["t-storm", "d-storm", "p-scheduler", "matrix"])
def test_re_implementations_are_marked_wherever_they_are_named(name: str) -> None:
    mark = "our re-implementation from published descriptions"
    assert mark in scheduler_class(name).paper
    assert mark in ROWS[name]
    assert mark in " ".join((PAGES / f"{name}.md").read_text().split()).replace("Our", "our")


@pytest.fixture(scope="module")
def images() -> dict[str, Any]:
    return runpy.run_path(str(IMAGES))


@pytest.mark.parametrize("name", computing_schedulers())
def test_the_command_on_the_page_draws_its_picture(name: str, images: dict[str, Any], tmp_path: Path) -> None:
    page = (PAGES / f"{name}.md").read_text()
    assert images["command"](name) in " ".join(page.replace("\\\n", " ").split())
    assert f"(images/{name}.svg)" in page
    drawn = images["draw"](name, tmp_path)
    assert drawn.read_bytes() == (PAGES / "images" / drawn.name).read_bytes(), UPDATE_IMAGES


def test_there_are_no_pictures_of_removed_schedulers() -> None:
    assert sorted(path.stem for path in (PAGES / "images").iterdir()) == sorted(computing_schedulers()), UPDATE_IMAGES


@pytest.mark.parametrize("name", computing_schedulers())
def test_a_page_has_all_sections_and_parameters(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text()
    for section in ("Reads", "Ignores", "Source", "Work"):
        assert f"\n- **{section}:** " in page
    for parameter in fields(scheduler_class(name).Params):
        assert f"`{parameter.name}`" in page or f"`{parameter.name.replace('_', '.', 1)}`" in page
    assert "\n## Example\n" in page
    assert page.rstrip().rsplit("\n## ", 1)[1].startswith("Ours")


@pytest.fixture(scope="module")
def comparison() -> dict[str, Any]:
    return runpy.run_path(str(COMPARISON))


def _rows(heading: str) -> dict[str, list[str]]:
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", COMPARED, re.DOTALL | re.MULTILINE)
    assert section
    rows = [line.strip("| ").split(" | ") for line in section[1].splitlines() if line.startswith("| ")]
    return {row[0]: row for row in rows}


MICRO, APPLICATIONS = _rows("The 72 micro-benchmarks"), _rows("The applications")


@pytest.mark.parametrize("name", computing_schedulers())
def test_every_scheduler_has_its_rows(name: str) -> None:
    assert f"`{name}`" in MICRO, UPDATE_COMPARISON
    assert f"`{name}`" in APPLICATIONS, UPDATE_COMPARISON


@pytest.mark.parametrize("name", ["even", "top-storm", "d-storm", "aniello-online", "optimal"])
def test_rows_are_up_to_date(name: str, comparison: dict[str, Any], best: dict[Any, int]) -> None:
    assert comparison["micro_row"](name, best) == MICRO[f"`{name}`"], UPDATE_COMPARISON
    assert comparison["application_row"](name) == APPLICATIONS[f"`{name}`"], UPDATE_COMPARISON


@pytest.fixture(scope="module")
def best(comparison: dict[str, Any]) -> dict[Any, int]:
    """Return the proven minimum of every case."""
    found: dict[Any, int] = comparison["optima"]()
    assert len(found) == 72
    return found


def test_the_pictures_are_up_to_date(comparison: dict[str, Any], tmp_path: Path) -> None:
    for path in comparison["draw_pictures"](tmp_path):
        assert path.read_bytes() == (PAGES / "comparison" / path.name).read_bytes(), UPDATE_COMPARISON
        assert f"(comparison/{path.name})" in COMPARED

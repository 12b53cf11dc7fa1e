"""The page that compares all schedulers on the same cases: it has every scheduler, and its figures are up to date."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from scheduler.registry import computing_schedulers

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "compare_cases.py"
PAGE = (ROOT / "docs" / "schedulers" / "comparison.md").read_text()
PICTURES = ROOT / "docs" / "schedulers" / "comparison"
HOW_TO_UPDATE = f"run: .venv/bin/python {SCRIPT.relative_to(ROOT)}"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def _rows(heading: str) -> dict[str, list[str]]:
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert section
    rows = [line.strip("| ").split(" | ") for line in section[1].splitlines() if line.startswith("| ")]
    return {row[0]: row for row in rows}


MICRO, APPLICATIONS = _rows("The 72 micro-benchmarks"), _rows("The applications")


@pytest.mark.parametrize("name", computing_schedulers())
def test_every_scheduler_has_its_rows(name: str) -> None:
    assert f"`{name}`" in MICRO, HOW_TO_UPDATE
    assert f"`{name}`" in APPLICATIONS, HOW_TO_UPDATE


@pytest.mark.parametrize("name", ["even", "top-storm", "d-storm", "aniello-online", "optimal"])
def test_rows_are_up_to_date(name: str, script: dict[str, Any], best: dict[Any, int]) -> None:
    assert script["micro_row"](name, best) == MICRO[f"`{name}`"], HOW_TO_UPDATE
    assert script["application_row"](name) == APPLICATIONS[f"`{name}`"], HOW_TO_UPDATE


@pytest.fixture(scope="module")
def best(script: dict[str, Any]) -> dict[Any, int]:
    """Return the proven minimum of every case."""
    found: dict[Any, int] = script["optima"]()
    assert len(found) == 72
    return found


def test_the_pictures_are_up_to_date(script: dict[str, Any], tmp_path: Path) -> None:
    for path in script["draw_pictures"](tmp_path):
        assert path.read_bytes() == (PICTURES / path.name).read_bytes(), HOW_TO_UPDATE
        assert f"(comparison/{path.name})" in PAGE

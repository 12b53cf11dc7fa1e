"""Pages of schedulers: the picture is drawn by the command on the page and up to date; all sections exist."""

import runpy
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from scheduler.registry import computing_schedulers, scheduler_class

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "schedulers"
SCRIPT = PAGES / "make_images.py"
HOW_TO_UPDATE = f"run: .venv/bin/python {SCRIPT.relative_to(ROOT)}"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.mark.parametrize("name", computing_schedulers())
def test_the_command_on_the_page_draws_its_picture(name: str, script: dict[str, Any], tmp_path: Path) -> None:
    page = (PAGES / f"{name}.md").read_text()
    assert script["command"](name) in " ".join(page.replace("\\\n", " ").split())
    assert f"(images/{name}.svg)" in page
    drawn = script["draw"](name, tmp_path)
    assert drawn.read_bytes() == (PAGES / "images" / drawn.name).read_bytes(), HOW_TO_UPDATE


def test_there_are_no_pictures_of_removed_schedulers() -> None:
    assert sorted(path.stem for path in (PAGES / "images").iterdir()) == sorted(computing_schedulers()), HOW_TO_UPDATE


@pytest.mark.parametrize("name", computing_schedulers())
def test_a_page_has_all_sections_and_parameters(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text()
    for section in ("Reads", "Ignores", "Source", "Work"):
        assert f"\n- **{section}:** " in page
    for parameter in fields(scheduler_class(name).Params):
        assert f"`{parameter.name}`" in page or f"`{parameter.name.replace('_', '.', 1)}`" in page
    assert "\n## Example\n" in page
    assert page.rstrip().rsplit("\n## ", 1)[1].startswith("Ours")

"""The page that lists schedulers agrees with the installed schedulers."""

import re
import tomllib
from pathlib import Path

import pytest

from scheduler.registry import GROUP, scheduler_class

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "schedulers"
NAMES = sorted(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][GROUP])
ROWS = dict(re.findall(r"^\| \[?`([\w-]+)`\S* \| (.*) \|$", (PAGES / "index.md").read_text(), re.MULTILINE))


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

"""The reference pages of the report name every table and column, and no other."""

import re
from pathlib import Path

import pytest

from agents.collected_traces import TABLES as TRACES
from analysis.figures.report_figures import KINDS, SLOT_KINDS
from analysis.page.build import COLUMNS
from analysis.records.descriptions import TRACE_TABLES

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGE = (REFERENCE / "report.md").read_text()
TABLES_PAGE = (REFERENCE / "report-tables.md").read_text()


def section(table: str) -> str:
    found = re.search(rf"^## {table}\n(.*?)(?=^##|\Z)", TABLES_PAGE, re.DOTALL | re.MULTILINE)
    assert found, f"there is no section {table!r}"
    return found.group(1)


@pytest.mark.parametrize("table", COLUMNS)
def test_every_column_is_documented_and_no_other(table: str) -> None:
    firsts = re.findall(r"^\| (`.*?) \|", section(table), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(firsts))) == set(COLUMNS[table])


def test_every_table_is_documented_and_no_other() -> None:
    assert set(re.findall(r"^## (\w+)$", TABLES_PAGE, re.MULTILINE)) == set(COLUMNS)


def test_the_figures_are_named() -> None:
    assert ", ".join(KINDS) in PAGE
    assert ", ".join(SLOT_KINDS) in PAGE


def test_the_page_of_a_report_explains_every_trace_table() -> None:
    assert list(TRACE_TABLES) == list(TRACES)

"""The gallery: its page lists ten agendas; three of them run here once, with their reports, one of them by Spark."""

import re
from pathlib import Path
from typing import Any

import pytest
from synthetic_campaign import report_without_spark

from campaign.agenda.agenda import builtin_agendas

GALLERY = sorted(name for name in builtin_agendas() if name.startswith("gallery/"))
PAGE = Path(__file__).parents[2] / "docs" / "gallery.md"


def test_every_agenda_is_on_the_page_with_its_question() -> None:
    text = PAGE.read_text()
    assert len(GALLERY) == 10
    for name in GALLERY:
        question = builtin_agendas()[name].read_text().splitlines()[0].removeprefix("# ").partition("? ")[0]
        assert re.search(rf"^## {re.escape(question)}\?\n\n`{name}`", text, re.MULTILINE), name


@pytest.mark.loopback
@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "runs", "table"), [("own-topology", 4, "ranking"), ("load-step", 2, "windows"), ("lost-worker", 2, "runs")]
)
def test_three_agendas_of_the_gallery_run_and_have_a_report(name: str, runs: int, table: str, workspace: Any) -> None:
    outcome = workspace.run("run", f"gallery/{name}", "--repetitions", "1", "--no-report", program=workspace.whole)
    assert outcome.status == 0, outcome
    folder = workspace.folder / "results" / name / "latest"
    if table == "ranking":
        outcome = workspace.run("report", f"results/{name}/latest", program=workspace.whole)
        assert outcome.status == 0, outcome
    else:  # of the records of runs alone
        report_without_spark(folder)
    report = folder / "report"
    rows = (report / "tables" / "runs.csv").read_text().splitlines()
    assert len(rows) == 1 + runs
    assert all(",ok,true," in row for row in rows[1:])
    assert len((report / "tables" / f"{table}.csv").read_text().splitlines()) > 1
    if name == "lost-worker":
        column = rows[0].split(",").index("recoveries")
        assert [row.split(",")[column] for row in rows[1:]] == ["1", "1"]

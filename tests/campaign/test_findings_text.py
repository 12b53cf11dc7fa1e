"""Findings of a campaign on the terminal."""

import os
import pty
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from analysis.statistics.metrics import Row
from analysis.statistics.ranking import PAIR_COLUMNS, RANKING_COLUMNS
from campaign.display.findings import NOTHING, tables_text
from campaign.display.terminal import stages_shown


def row(scheduler: str, metric: str, median: float, percent: float | None, **changes: Any) -> Row:
    defaults = dict.fromkeys(RANKING_COLUMNS) | {"workload": "wordcount", "baseline": "even", "unit": "", "n": 3}
    return defaults | {"scheduler": scheduler, "metric": metric, "median": median, "change_percent": percent} | changes


def text_of(
    folder: Path, *rows: Row, pairs: Sequence[Row] = (), clear: Sequence[Row] = (), suspect: Sequence[str] = ()
) -> str:
    """Return the text of these rows, and of a run that counts for each of the reasons in `suspect`."""
    runs = [*({"counts": True, "suspect": reason} for reason in suspect), {"counts": False, "suspect": ""}]
    tables = {"ranking": list(rows), "pairs": list(pairs), "pairs_without_suspect": list(clear), "runs": runs}
    return tables_text(tables, folder)


def test_every_scheduler_has_a_row_with_its_changes_against_the_baseline(tmp_path: Path) -> None:
    text = text_of(
        tmp_path,
        row("even", "sink_tuples_per_s", 123456.4, 0.0),
        row("even", "latency_p95_ms", 3.149, 0.0),
        row("even", "inter_node_tuples_per_s", 8000.0, 0.0),
        row("top-storm", "sink_tuples_per_s", 123400.0, -0.05),
        row("top-storm", "inter_node_tuples_per_s", 2080.0, -74.0),
    )
    lines = text.splitlines()
    assert "Medians (against even)" in lines[0]
    assert [line.split() for line in lines[-2:]] == [
        ["wordcount", "even", "3", "123,456", "3.15", "8,000"],
        ["top-storm", "3", "123,400", "−0.1", "%", "-", "2,080", "−74", "%"],
    ]


@pytest.mark.parametrize("doubtful", [{"even"}, {"top-storm"}, {"even", "top-storm"}, set()])
def test_suspect_runs_are_counted_and_changes_with_them_are_in_parentheses(tmp_path: Path, doubtful: set[str]) -> None:
    rows = [
        row(scheduler, "sink_tuples_per_s", 1000.0, change, suspect=3 if scheduler in doubtful else 0)
        for scheduler, change in (("even", 0.0), ("top-storm", 48.0))
    ]
    reasons = ["host busy"] * (3 * len(doubtful)) + [""] * (6 - 3 * len(doubtful))
    lines = text_of(tmp_path, *rows, suspect=reasons).splitlines()
    last = next(line.split() for line in lines if line.split()[:1] == ["top-storm"])
    if doubtful:
        own = ["3"] if "top-storm" in doubtful else []
        assert last == ["top-storm", "3", *own, "1,000", "(+48", "%)"]
        assert lines[-1].startswith(f"{3 * len(doubtful)} of 6 runs are suspect, and changes in parentheses are from ")
        assert lines[-1].endswith(f"millrace results {tmp_path}")
    else:
        assert last == ["top-storm", "3", "1,000", "+48", "%"]
        assert "suspect" not in "".join(lines)


def test_the_number_of_repetitions_is_never_left_out_of_a_narrow_table(tmp_path: Path) -> None:
    """No traffic between nodes, so that its column of changes is empty."""
    schedulers = ("even", "resource-aware", "top-storm")
    changes = {"sink_tuples_per_s": 0.3, "latency_p95_ms": 25.0, "inter_node_tuples_per_s": None}
    text = text_of(tmp_path, *(row(s, m, 448.0, change, n=9) for s in schedulers for m, change in changes.items()))
    lines = text.splitlines()
    assert all(" 9 " in line for line in lines[-3:])


def test_the_sentences_of_the_report_follow_the_table(tmp_path: Path) -> None:
    pair = dict.fromkeys(PAIR_COLUMNS) | {"workload": "wordcount", "scheduler": "top-storm", "other": "even", "n": 10}
    pair |= {"metric": "inter_node_tuples_per_s", "ratio": 0.26, "ratio_low": 0.23, "ratio_high": 0.3}
    rows = [row(scheduler, "inter_node_tuples_per_s", 1.0, None) for scheduler in ("even", "top-storm")]
    all_of_them = pair | {"n": 11, "suspect": 1, "outcome": ""}
    text = text_of(tmp_path, *rows, pairs=[all_of_them], clear=[pair | {"outcome": "lower"}])
    assert text.splitlines()[-3:] == [
        "",
        "wordcount: top-storm against even: no conclusion, of 11 repetitions there are 1 with suspect runs.",
        "wordcount: Without suspect runs: top-storm sends 74 % fewer tuples between nodes than even [70, 77], n = 10.",
    ]


def test_without_runs_that_count_there_are_no_findings(tmp_path: Path) -> None:
    assert text_of(tmp_path) == NOTHING


def test_names_cannot_control_the_terminal(tmp_path: Path) -> None:
    text = text_of(tmp_path, row("=\x1b[2J", "sink_tuples_per_s", 1.0, None, workload="[red]w"))
    assert "=\\x1b[2J" in text
    assert "[red]w" in text
    assert "\x1b" not in text


def read_terminal(terminal: int) -> bytes:
    """Return unread bytes of a terminal; empty at its end, when it has no writer."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""


@pytest.mark.parametrize("quiet", [True, False])
def test_stages_of_the_job_leave_no_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch, quiet: bool) -> None:
    monkeypatch.setenv("TERM", "xterm")
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with stages_shown(quiet, color=False) as show_stage:
            show_stage("report: table 3 of 16")
        terminal.write("end\n")
    shown = b"".join(iter(lambda: read_terminal(master), b"")).decode()
    os.close(master)
    # Later output begins on an erased line.
    assert shown.endswith("end\r\n")
    assert ("\x1b[2K" in shown) is not quiet


def test_without_a_terminal_a_job_has_its_first_and_last_line_and_one_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 1000.0
    monkeypatch.setattr("campaign.display.terminal.time.monotonic", lambda: now)
    with stages_shown(quiet=False, color=False) as show_stage:
        # Spark's own progress, every two seconds.
        for second in range(0, 26, 2):
            now = 1000.0 + second
            show_stage(f"report: {second} s")
    assert capsys.readouterr().err.splitlines() == [f"report: {second} s" for second in (0, 10, 20, 24)]
    with stages_shown(quiet=False, color=False) as show_stage:
        show_stage("report: starting")
        show_stage("report: table 3 of 16")
    assert capsys.readouterr().err.splitlines() == ["report: starting", "report: table 3 of 16"]

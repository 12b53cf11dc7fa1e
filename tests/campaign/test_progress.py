"""Progress of a running campaign on the terminal and in `live.json`."""

import io
import json
import time
from pathlib import Path
from typing import Any

import pytest
from observed_rounds import nodes, observed
from rich.console import Console

from agents.protocol import Progress, Work
from analysis.records.file_types import FAILED, OK
from campaign.agenda.run_order import ordered_runs
from campaign.display.progress import Display, LineProgress, Silence, decision_in_words, flow_in_words, view_for
from campaign.results.live_file import OVERHEAD_S, LiveFile, duration_text, ms_in_words, write_live
from controller.coordinator.event_log import EventLog, LiveDecision
from controller.coordinator.live_metrics import LiveMetrics
from controller.coordinator.rescheduling import DecisionNote

RUNS = ordered_runs(["wordcount"], ["even"], 4, "sequential", 0)


def live_file(done: int = 1) -> LiveFile:
    return LiveFile("race", len(RUNS), done, nominal_s=10)


def flowing() -> LiveMetrics:
    """Return metrics of a topology with 1,234.5 tuples/s into its only sink."""
    flow, now = LiveMetrics(), time.monotonic()
    for at, sunk in ((0, 0), (2, 2469)):
        progress = Progress(epoch=1, slot=0, at_ns=at * 10**9, emitted=sunk, sunk=sunk, latency_p50_ns=4_250_000)
        flow.record("n1", progress, now)
    return flow


def test_draining_is_told_in_rows_left_and_their_rate(capsys: pytest.CaptureFixture[str]) -> None:
    state, flow, now = live_file(), LiveMetrics([("src", "sink")]), time.monotonic()
    state.start(RUNS[0], 1, 0)
    for at, processed in ((0, 80_000), (1, 84_000)):
        works = {
            "src[0]": Work(204_000, None, None, 0, 0, 0, 204_000, None, 0),
            "sink[0]": Work(0, processed, 204_000 - processed, 0, 0),
        }
        flow.record("n1", Progress(epoch=1, slot=0, at_ns=at * 10**9, emitted=0, sunk=0, executors=works), now)
    state.stage("draining", None, flow)
    live = state.record()
    assert live.time_left_s == 30.0
    view = LineProgress()
    view.open()
    view._next = 0.0
    view.draw(live)
    assert "draining: 120,000 rows left, 4,000/s, about 30 s" in capsys.readouterr().err


def test_time_left_is_that_of_all_runs_at_first_and_shrinks_with_each() -> None:
    state = live_file()
    estimates = [state.time_left_s]
    assert estimates[0] == pytest.approx(3 * (10 + OVERHEAD_S))
    for left, run in zip((2, 1, 0), RUNS[1:], strict=True):
        state.start(run, 1, left)
        assert state.time_left_s <= estimates[-1]
        state.end(OK)
        estimates.append(state.time_left_s)
    assert estimates[-1] == 0


def test_time_left_follows_the_runs_that_went_well() -> None:
    state = live_file(done=0)
    state.start(RUNS[0], 1, 3)
    state.end(FAILED)
    assert state.time_left_s == pytest.approx(3 * (10 + OVERHEAD_S))
    state.start(RUNS[1], 1, 2)
    took = state.end(OK)
    assert state.time_left_s == pytest.approx(2 * took)


def test_live_json_has_null_for_unknown_values(tmp_path: Path) -> None:
    state = live_file()
    write_live(state.record(), tmp_path)
    first = json.loads((tmp_path / "live.json").read_text())
    assert first["run"] is None
    assert first["tuples_per_s"] is None
    assert first["outcomes"] == {"ok": 1, "incomplete": 0, "failed": 0, "skipped": 0}
    state.start(RUNS[1], 2, 2)
    state.stage("measuring", 60, flowing())
    write_live(state.record(), tmp_path)
    second = json.loads((tmp_path / "live.json").read_text())
    assert (second["run"], second["attempt"], second["number"], second["of"]) == ("002-wordcount-even-r2", 2, 2, 4)
    assert (second["stage"], second["stage_s"]) == ("measuring", 60)
    assert (second["tuples_per_s"], second["latency_p50_ms"]) == (1234.5, 4.25)
    assert [path.name for path in tmp_path.iterdir()] == ["live.json"]


def test_a_live_file_that_cannot_be_written_is_ignored(tmp_path: Path) -> None:
    write_live(live_file().record(), tmp_path / "gone")
    assert not (tmp_path / "gone").exists()


def test_plain_lines_have_run_stage_flow_and_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, view = live_file(), LineProgress()
    view.open()
    state.start(RUNS[1], 1, 2)
    state.stage("measuring", 60, flowing())
    live = state.record()
    view.draw(live)
    assert capsys.readouterr().err == ""  # not every second
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 11)
    view.draw(live)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "run 2/4 002-wordcount-even-r2: measuring, 1,234 tuples/s, p50 4.25 ms" in captured.err
    assert captured.err.rstrip().endswith("left")


@pytest.mark.parametrize(
    ("ms", "words"), [(0.51234, "0.512 ms"), (12.345, "12.3 ms"), (999.96, "1,000 ms"), (12345.6, "12,346 ms")]
)
def test_latencies_are_formatted_without_exponents(ms: float, words: str) -> None:
    assert ms_in_words(ms) == words


def test_inputs_being_sent_are_counted_until_all_are_sent_or_the_next_stage_begins() -> None:
    state = live_file()
    state.start(RUNS[1], 1, 2)
    state.stage("starting workers")
    assert state.record().sending is None
    state.send("n1/trips", 30_000_000, 50_000_000)
    state.send("n2/trips", 20_000_000, 50_000_000)
    assert flow_in_words(state.record()) == "sending files, 50 of 100 MB"
    for node in ("n1", "n2"):
        state.send(f"{node}/trips", 50_000_000, 50_000_000)
    assert flow_in_words(state.record()) == ""
    state.send("n2/trips", 1, 2)
    state.stage("warming up")
    assert state.record().sending is None


def test_the_live_display_shows_run_stage_flow_time_left_and_failures() -> None:
    terminal = io.StringIO()
    view = Display(Console(file=terminal, force_terminal=True, width=100, no_color=True))
    state = live_file()
    view.open()
    state.start(RUNS[1], 1, 2)
    state.end(FAILED)
    state.start(RUNS[2], 2, 1)
    state.stage("measuring", 60, flowing())
    view.draw(state.record())
    view.print_line("run 2/4 failed")
    view.close()
    text = terminal.getvalue()
    for part in (
        "race",
        "run 3 of 4",
        RUNS[2].name,
        "attempt 2",
        "measuring",
        "0/60 s",
        "1,234 tuples/s",
        "p50 4.25 ms",
    ):
        assert part in text
    assert "1 ok" in text
    assert "1 failed" in text
    assert "run 2/4 failed" in text


def test_quiet_shows_nothing_and_a_pipe_gets_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert capsys.readouterr().err == ""  # standard error is pytest's now, and no terminal
    assert isinstance(view_for(quiet=True, color=True), Silence)
    assert isinstance(view_for(quiet=False, color=True), LineProgress)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (185, "3 min 05 s"),
        (7800, "2 h 10 min"),
        (86400 * 3 + 3600 * 4, "3 d 4 h"),
    ],
)
def test_durations_are_formatted_in_two_units(seconds: float, words: Any) -> None:
    assert duration_text(seconds) == words


def test_decisions_are_in_live_json_until_the_run_ends_and_taken_once(tmp_path: Path) -> None:
    state, log = live_file(), EventLog(lambda *event: None)
    state.start(RUNS[1], 1, 2)
    assert state.take_decisions() == []
    state.follow(log)
    log.decided(1, None, 60, 0.125)
    assert state.take_decisions() == []  # without an outcome
    log.revision(DecisionNote(1, 60.2, observed(60, cluster=nodes()), None, 0.125, 0.1, "no"))
    write_live(state.record(), tmp_path)
    (entry,) = json.loads((tmp_path / "live.json").read_text())["decisions"]
    assert entry == {
        "number": 1,
        "at_s": 60.0,
        "decided_s": 0.125,
        "reason": "",
        "outcome": "no",
        "message": "",
        "moves": 0,
        "took_s": None,
    }
    assert [found.number for found in state.take_decisions()] == [1]
    assert state.take_decisions() == []
    state.end(OK)
    assert state.record().decisions == ()
    state.start(RUNS[2], 1, 1)
    assert state.take_decisions() == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reason": "cut", "moves": 37, "outcome": "done", "took_s": 0.0512}, "cut, 37 moves, done in 0.051 s"),
        ({"reason": "nodes", "moves": 1, "outcome": "stale", "message": "9 s old"}, "nodes, 1 move, stale: 9 s old"),
        ({"outcome": "late", "message": "no answer in 30 s"}, "late: no answer in 30 s"),
        ({"reason": "clocks", "outcome": "too_large"}, "clocks, too large"),
        ({"reason": "cut", "moves": 2}, "cut, 2 moves, under way"),
        ({"outcome": "no"}, "no"),
    ],
)
def test_a_decision_is_a_line(changes: dict[str, Any], words: str) -> None:
    assert decision_in_words(LiveDecision(number=2, at_s=5.0, decided_s=0.1, **changes)) == words

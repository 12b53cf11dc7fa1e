"""Foreign text in commands, views, messages and logs cannot control the terminal or forge lines."""

import io
import json
import logging
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from msgspec.structs import replace

from agents.agent.agent import Formatter
from agents.protocol import CpusSet, Failed, Hello, IdleBaseline, Idled, Lost, Progress, Slot, Work
from agents.protocol import decode_report as decoded
from agents.protocol import encode as encoded
from campaign.commands.main import run
from campaign.display.progress import Display, LineProgress
from campaign.display.terminal import plain_console
from campaign.display.top_view import snapshot
from campaign.results.live_file import CampaignCondition, LiveFile, Watched
from controller.coordinator.event_log import LiveDecision
from controller.coordinator.live_metrics import LiveMetrics
from inventory.documents import parse_document
from inventory.errors import InputError, RunError
from inventory.foreign import MOST, printable

HOSTILE = "[/]=\x1b]0;title\x07\x9b2J\r\nrun 1/1 001-wordcount-even-r1 ok in 5 s"
CONTROL_CHARACTERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")
FORGED = re.compile(r"^run 1/1 .* ok in", re.MULTILINE)


def check(shown: str) -> str:
    assert not CONTROL_CHARACTERS.search(shown)
    assert not FORGED.search(shown)
    return shown


@pytest.mark.parametrize("kind", ["lines", "display"])
def test_a_line_of_progress_is_one_line(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    console = plain_console(color=False)
    console.file = out
    (LineProgress() if kind == "lines" else Display(console)).print_line(f"run 1/2 x failed: {HOSTILE}", "red")
    shown = out.getvalue() or capsys.readouterr().err
    assert "x failed: [/]=\\x1b]0;title" in check(shown)


def test_text_of_a_node_is_printable_and_bounded_when_it_is_sent_and_received() -> None:
    words = HOSTILE * 400_000
    messages = [
        Failed(epoch=1, slot=0, reason=words, log=HOSTILE),
        Lost(epoch=1, slot=0, peer=Slot("n1", 0), reason=words),
        CpusSet(refused=(words,)),
        Idled(baseline=IdleBaseline(reason=words, flags=(HOSTILE,))),
        Hello(version=1, pid=1, python=words, facts={HOSTILE: [words]}),
    ]
    for message in messages:
        line = encoded(message)
        assert len(line) < 3 * MOST
        assert decoded(line) == message
        # Another sender may send any text.
        raw = line.decode().replace(json.dumps(printable(words))[1:-1], json.dumps(words)[1:-1])
        assert len(raw) > len(words)
        assert decoded(raw.encode()) == message


def test_an_invalid_report_is_quoted_printably() -> None:
    line = json.dumps({"type": "failed", "epoch": 1, "slot": 0, "reason": "", HOSTILE * 1000: 1}).encode()
    with pytest.raises(RunError) as caught:
        decoded(line)
    assert len(str(caught.value)) <= MOST
    check(str(caught.value))


def test_names_in_live_json_and_in_top_are_printable() -> None:
    flow = LiveMetrics()
    for at in (0, 1):
        work = {HOSTILE: Work(emitted=1, processed=1, queued=0, busy_ns=1, blocked_ns=0)}
        flow.record("n1", Progress(epoch=1, slot=0, at_ns=at * 10**9, emitted=1, sunk=1, executors=work), 0.0)
    document = flow.document(0.0)
    assert not CONTROL_CHARACTERS.search(str(document))
    decisions = (LiveDecision(number=1, at_s=5.0, decided_s=0.1, reason=HOSTILE, outcome=HOSTILE, message=HOSTILE),)
    live = replace(LiveFile("race", 4, 1, 10.0).record(), flow=document, decisions=decisions)
    out = io.StringIO()
    console = plain_console(color=False)
    console.file, console.width = out, 200
    watched = Watched(Path("results") / HOSTILE, CampaignCondition.ENDED, live, 0.0)
    console.print(snapshot(watched))
    check(out.getvalue())


def test_unknown_keys_values_and_paths_are_printable_in_messages() -> None:
    class Shelf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        code: int = 0

    for text in (json.dumps({HOSTILE: 1}), json.dumps({"code": HOSTILE * 1000}), json.dumps({HOSTILE * 1000: 1})):
        with pytest.raises(InputError) as caught:
            parse_document(text, HOSTILE).convert(Shelf)
        assert len(str(caught.value)) <= MOST
        assert "\n" not in check(str(caught.value))


@pytest.mark.parametrize(
    "words",
    [
        ("run", HOSTILE),
        ("run", "demo", "--inventory", HOSTILE),
        ("run", "--resume", HOSTILE),
        ("top", HOSTILE),
        ("report", HOSTILE),
        ("doctor", "--sysfs", HOSTILE),
        ("verify", HOSTILE),
        ("place", "--cluster", HOSTILE, "--topology", HOSTILE, "--scheduler", HOSTILE),
        ("--\x1b]0;title",),
        (HOSTILE,),
    ],
)
def test_errors_about_arguments_cannot_control_the_terminal(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(words) == 2
    captured = capsys.readouterr()
    assert "title" in check(captured.err)
    assert captured.out == ""


def test_names_in_cluster_and_topology_cannot_control_the_terminal_or_break_a_picture(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("c.json").write_text(json.dumps({"nodes": [{"id": HOSTILE}, {"id": "n2"}]}))
    components = [
        {"id": "a\x1bctitle\x07", "kind": "spout", "parallelism": 2},
        {"id": "b", "kind": "bolt", "parallelism": 2, "inputs": [{"from": "a\x1bctitle\x07", "grouping": "shuffle"}]},
    ]
    Path("t.json").write_text(json.dumps({"id": HOSTILE, "workers": 2, "components": components}))
    given = ("place", "--cluster", "c.json", "--topology", "t.json")
    assert run([*given, "--scheduler", "even", "--explain"]) == 0, capsys.readouterr().err
    assert "a\\x1bctitle\\x07[" in check(capsys.readouterr().out)
    assert run([*given, "--compare", "even,default"]) == 0
    check(capsys.readouterr().out)
    pictures = list(tmp_path.rglob("*.svg"))
    assert len(pictures) == 2
    for picture in pictures:
        ElementTree.parse(picture)  # noqa: S314 - our own
        assert not CONTROL_CHARACTERS.search(picture.read_text())
    assert run([*given, "--scheduler", "even", "--json"]) == 0
    # JSON has the original names, escaped so that they cannot control the terminal either.
    out = capsys.readouterr().out
    assert not CONTROL_CHARACTERS.search(out)
    assert HOSTILE in {node["id"] for node in json.loads(out)["nodes"]}


def test_a_line_of_an_agents_log_is_one_line() -> None:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(Formatter("%(asctime)s %(message)s"))
    log = logging.Logger("of a test")
    log.addHandler(handler)
    log.error("%s", HOSTILE)
    assert len(out.getvalue().splitlines()) == 1
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        log.error("internal error", exc_info=sys.exc_info())
    assert "ValueError: [/]=\\x1b]0;title" in check(out.getvalue())

"""`millrace top` beside a real campaign: on a terminal, without one, and after the death of the campaign."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.loopback

TIMEOUT_S = 60.0
NORMAL_SCREEN = b"\x1b[?1049l"
ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

EXECUTORS = {"spout[0]", "spout[1]", "split[0]", "split[1]", "count[0]", "count[1]"}

PRINTS_ITS_STAGE = """\
import analysis.page.render
import campaign.display.findings
from millrace.__main__ import main
from campaign.results.live_file import look_at

def render(folder, on_progress):
    watched = look_at(folder)
    print(watched.condition.value, watched.live.stage)
    return folder

analysis.page.render.render = render
campaign.display.findings.findings_text = lambda *_: ""
main()
"""
"""`millrace` that prints, in place of a report, what `top` shows while the report is made."""


@pytest.fixture(scope="module")
def running(shared_workspace: Any) -> Any:
    """Workspace with a campaign that measures for longer than the tests need."""
    shared_workspace.start("run", shared_workspace.agenda(schedulers=["even"], duration_s=300))
    shared_workspace.wait_for(lambda: _flows(shared_workspace.live()), "a flow")
    return shared_workspace


def _flows(live: Any) -> bool:
    flow = live.get("flow")
    return bool(flow) and len(flow["executors"]) == 6 and all(e["busy"] is not None for e in flow["executors"])


class Terminal:
    """`millrace` on its own terminal."""

    def __init__(self, workspace: Any, lines: int, columns: int, *arguments: str) -> None:
        environment = {**workspace.environment, "TERM": "xterm-256color"}
        for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
            environment.pop(name, None)
        go, ready = os.pipe()
        self.pid, self._master = pty.fork()
        if not self.pid:
            try:
                os.close(ready)
                os.read(go, 1)
                os.chdir(workspace.folder)
                os.execve(sys.executable, [sys.executable, "-P", "-c", workspace.whole, *arguments], environment)  # noqa: S606
            finally:
                os._exit(70)
        os.close(go)
        self.resize(lines, columns)
        self.before = termios.tcgetattr(self._master)
        os.close(ready)
        self.output = b""

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def expect(self, pattern: str) -> str:
        """Wait until `pattern` has been drawn since the last call; return what was drawn until then."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            text = self.output.decode(errors="replace")
            plain = ESCAPE_SEQUENCE.sub("", text)
            if re.search(pattern, plain) or re.search(pattern, text):
                self.output = b""
                return plain
            if time.monotonic() > deadline or not self._read():
                pytest.fail(f"{pattern!r} was not drawn, but: {text[-3000:]}")

    def end(self) -> tuple[int, bytes]:
        """Wait for the end; return the exit status, and the output since the last `expect`."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                while select.select([self._master], [], [], 0)[0] and self._read():
                    pass
                return os.waitstatus_to_exitcode(status), self.output
            if time.monotonic() > deadline:
                pytest.fail(f"it does not end; its output: {self.output[-500:]!r}")
            self._read()

    @property
    def is_as_before(self) -> bool:
        return termios.tcgetattr(self._master) == self.before

    def _read(self) -> bool:
        if select.select([self._master], [], [], 0.1)[0]:
            try:
                self.output += os.read(self._master, 65536)
            except OSError:
                return False
        return True

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._master)


@pytest.fixture
def terminal(running: Any) -> Iterator[Any]:
    made: list[Terminal] = []

    def start(lines: int, columns: int, *arguments: str) -> Terminal:
        made.append(Terminal(running, lines, columns, *arguments))
        return made[-1]

    yield start
    for one in made:
        one.close()


def test_json_is_one_document_with_every_executor_and_what_it_does(running: Any) -> None:
    outcome = running.run("top", "--json", program=running.whole)
    assert outcome.status == 0, outcome
    assert outcome.err == ""
    live = json.loads(outcome.out)
    assert (live["condition"], live["stage"], live["run"]) == ("running", "measuring", "001-wordcount-even-r1")
    assert live["folder"] == str(running.campaign)
    flow = live["flow"]
    executors = {entry["executor"]: entry for entry in flow["executors"]}
    assert executors.keys() == EXECUTORS
    assert sum(executors[f"spout[{at}]"]["out_per_s"] for at in range(2)) > 0
    assert all((executors[name]["in_per_s"] is None) == name.startswith("spout") for name in executors)
    assert {entry["node"] for entry in executors.values()} == {"n1", "n2"}
    assert {entry["hop"] for entry in flow["traffic"]} <= {"intra_worker", "inter_worker", "inter_node"}
    across = [entry for entry in flow["traffic"] if entry["hop"] == "inter_node"]
    assert {(entry["from"], entry["to"]) for entry in across} <= {("n1", "n2"), ("n2", "n1")}
    assert sum(entry["bytes_per_s"] for entry in across) > sum(entry["tuples_per_s"] for entry in across) > 0
    assert [node["node"] for node in flow["nodes"]] == ["n1", "n2"]
    assert all(node["cpu_cores"] > 0 and node["workers"] for node in flow["nodes"])
    assert flow["late_s"] is not None


def test_a_running_campaign_can_be_observed_without_the_rates_of_pairs(running: Any) -> None:
    outcome = running.run("observe", "results/short/latest")
    assert outcome.status == 0, outcome
    assert "is still running: the rates between its executors are unknown" in outcome.err
    observation = json.loads(outcome.out)
    assert (observation["complete"], observation["missing"], observation["traffic"]["edges"]) == (False, [], [])
    assert observation["executors"].keys() == EXECUTORS
    assert 0 < observation["since_s"] < observation["at_s"] < 300
    assert observation["source"]["emitted_per_s"] == pytest.approx(300, rel=0.3)
    assert "its traces are collected at its end" in running.run("traffic", "results/short/latest").err


def test_without_a_terminal_the_state_is_printed_once(running: Any) -> None:
    outcome = running.run("top", "results/short/latest", program=running.whole)
    assert outcome.status == 0, outcome
    assert "\x1b" not in outcome.out
    assert {line.split()[0] for line in outcome.out.splitlines() if "[" in line} == EXECUTORS
    for words in ("001-wordcount-even-r1", "measuring", "n1 -> n2", "between nodes", "tuples/s"):
        assert words in outcome.out


def test_on_a_terminal_it_refreshes_sorts_resizes_and_restores_the_terminal(terminal: Any) -> None:
    top = terminal(24, 80, "top")
    first = top.expect("quit")
    assert all(f" {word}" in first for word in ("rate", "queue", "busy", "run 1 of 1"))
    assert "node/slot" in first
    top.expect("quit")  # the next second
    top.press(b"b")
    top.expect(r"\x1b\[7mbusy")
    top.resize(40, 150)
    top.expect("late +between nodes")
    top.press(b"q")
    status, last = top.end()
    assert status == 0
    assert NORMAL_SCREEN in last
    assert top.is_as_before


def test_ctrl_c_ends_top(terminal: Any) -> None:
    top = terminal(24, 80, "top", "latest")
    top.expect("quit")
    assert not top.is_as_before
    top.press(b"\x03")
    status, last = top.end()
    assert status == 0
    assert NORMAL_SCREEN in last
    assert b"Traceback" not in last
    assert top.is_as_before


def test_a_killed_campaign_is_reported_as_dead(running: Any, terminal: Any) -> None:
    """Must be the last test with this campaign, which it kills."""
    top = terminal(24, 80, "top")
    top.expect("quit")
    os.kill(running.live()["process"]["pid"], signal.SIGKILL)
    status, last = top.end()
    assert status == 0
    assert b"died: its process is gone" in last[last.index(NORMAL_SCREEN) :]
    outcome = running.run("top", "latest", program=running.whole)
    assert outcome.status == 0, outcome
    assert "died" in outcome.out
    assert f"millrace run --resume {running.campaign}" in outcome.out
    assert json.loads(running.run("top", "--json", program=running.whole).out)["condition"] == "died"


@pytest.mark.long
def test_a_campaign_whose_report_is_being_made_is_not_finished_yet(workspace: Any) -> None:
    outcome = workspace.run("run", workspace.agenda(schedulers=["even"]), program=PRINTS_ITS_STAGE)
    assert outcome.status == 0, outcome
    assert "running reporting" in outcome.out
    assert workspace.live()["stage"] == "finished"
    outcome = workspace.run("top", program=workspace.whole)
    assert "the campaign has ended" in outcome.out


@pytest.mark.long
def test_decisions_and_revisions_are_shown_as_they_happen(workspace: Any) -> None:
    online = {"window_s": 2, "first_s": 3, "ask_s": 2, "revision": {"settle_s": 0.5}}
    entry = {"name": "i-scheduler", "params": {"initial": "even"}, "online": online}
    process = workspace.start("run", workspace.agenda(schedulers=[entry], duration_s=15, checkpoint_s=2))
    workspace.wait_for(lambda: workspace.live().get("decisions") or process.poll() is not None, "a decision")
    shown = workspace.run("top", program=workspace.whole)
    assert re.search(r"^decision 1 at [3-9]\.\d s, after .* s: ", shown.out, re.MULTILINE), shown
    ended = workspace.wait_for_end(process)
    assert ended.status == 0, ended
    (run,) = workspace.results().values()
    revised = [each for each in run["measured"]["revisions"] if each["outcome"] != "no"]
    assert [each["outcome"] for each in revised][:1] == ["done"]
    lines = [line for line in ended.err.splitlines() if line.startswith("revision")]
    assert [int(line.split()[1].rstrip(":")) for line in lines] == [each["number"] for each in revised]
    assert re.fullmatch(r"revision \d+: cut, \d+ moves?, done in \S+ s", lines[0])
    assert workspace.live()["decisions"] == []


def test_top_without_a_campaign_is_a_usage_error(workspace: Any) -> None:
    outcome = workspace.run("top", program=workspace.whole)
    assert outcome.status == 2
    assert "none in results/" in outcome.err

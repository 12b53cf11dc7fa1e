"""`millrace check` with good and faulty plug-ins of other packages."""

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest

from campaign.commands.main import run
from inventory.plugins import plugins
from scheduler.registry import computing_schedulers
from workloads.workload import GROUP as WORKLOADS

QUICKLY_CHECKED = ("even", "t-storm")
FAULTY_ONLINE = Path(__file__).parents[1] / "support" / "faulty_online.py"
SAMPLE = Path(__file__).parents[1] / "sample_plugin" / "sample_plugin.py"

SCHEDULERS = """
import os, sys, time
from scheduler.algorithms.even import Even
from scheduler.problem import Placement, Plan, Slot

class Named(Even):
    def on(self, problem, number):
        nodes = problem.cluster.available
        slot = Slot(nodes[number % len(nodes)].id, 0)
        return Plan({t.id: Placement({e: slot for e in t.executors}) for t in problem.topologies[:1]} |
                    {t.id: Placement({}, "failed", "no room") for t in problem.topologies[1:]})

class Counting(Named):
    name = "bad-counting"
    asked = 0
    def place(self, problem):
        if problem.existing or len(problem.cluster.nodes) < 2:
            return super().place(problem)
        Counting.asked += 1
        return self.on(problem, Counting.asked)

class Hashing(Named):
    name = "bad-hashing"
    def place(self, problem):
        if problem.existing or len(problem.cluster.nodes) < 2:
            return super().place(problem)
        return self.on(problem, hash("hashing"))

class Mutating(Named):
    name = "bad-mutating"
    def place(self, problem):
        plan = super().place(problem)
        if problem.traffic is not None:
            problem.traffic.load.clear()
        return plan

class Clearing(Named):
    name = "bad-clearing"
    def place(self, problem):
        plan = super().place(problem)
        problem.cluster.by_id["n9"] = None
        return plan

class Slow(Named):
    name = "bad-slow"
    def place(self, problem):
        time.sleep(60)

class Wrong(Named):
    name = "bad-plan"
    def place(self, problem):
        return Plan({t.id: Placement({e: Slot("n1", 99) for e in t.executors}) for t in problem.topologies})

class Broken(Named):
    name = "bad-broken"
    def place(self, problem):
        return {}["nothing"]

class Dying(Named):
    name = "bad-dying"
    def place(self, problem):
        sys.exit("that was it")

class Fastest(Named):
    name = "bad-needs"
    def place(self, problem):
        if problem.existing or len(problem.cluster.nodes) < 2:
            return super().place(problem)
        speeds = [node.ghz or 0 for node in problem.cluster.available]
        return self.on(problem, speeds.index(max(speeds)))
"""

OPERATORS = """
import itertools, json, os
from hashlib import sha256
from sample_plugin import Counting, Numbers, Total
from workloads.keyed_state import KeyedState
from workloads.operators import NOTHING, Bolt
from workloads.workload import PreparedInput

class Bad(Numbers):
    total = Total
    counting = Counting
    def operator(self, component):
        return {"numbers": self.counting, "total": self.total}[component]()

def bad(called, **methods):
    made = type(called, (Total,), {**methods, "__module__": __name__})
    return type(called, (Bad,), {"name": f"bad-{called}", "total": made})

def forget(self, state):
    pass

def fail(self, batch):
    json.loads("{")

def never(self, batch):
    while True:
        pass

KEPT, TOKENS = {}, itertools.count()

def hide(self):
    token = str(next(TOKENS))
    KEPT[token] = self.sum
    return token.encode()

def find(self, state):
    self.sum = KEPT.get(state.decode(), 0)

class doubling(Bolt):
    answer_table, answer_schema = Total.answer_table, Total.answer_schema
    sums = KeyedState(int, merge=lambda one, other: 2 * one + other)

    def process(self, batch):
        self.sums["all"] += sum(number for (number,) in batch.rows)
        self.sums["none"] += 1
        return NOTHING

    def answer(self):
        return [("all", self.sums["all"])]

class Doubling(Bad):
    name, total = "bad-doubling", doubling
Forgetful = bad("forgetful", restore=forget)
Speechless = bad("speechless", snapshot=lambda self: None)
Failing = bad("failing", process=fail)
Endless = bad("endless", process=never)
Hiding = bad("hiding", snapshot=hide, restore=find)

class Chancy(Counting):
    def next_batch(self, limit):
        return super().next_batch(max(1, limit - next(TOKENS) % 2))

class Chance(Bad):
    name, counting = "bad-chance", Chancy

class Fresh(Bad):
    name = "bad-fresh"
    def prepare(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "token").write_text(str(folder))
        return [PreparedInput("token", folder / "token", sha256(str(folder).encode()).hexdigest(), 1, "made up")]

class Leaving(Bad):
    name = "bad-leaving-input"
    def prepare(self, folder):
        os._exit(7)

class Wrong(Bad):
    name = "bad-reference"
    def reference(self, positions, inputs):
        return {"total": [("all", sum(positions))]}
"""

STARTING = """
import subprocess
subprocess.Popen(["sleep", "30"], start_new_session=True)
"""

FAILING_LINE = OPERATORS.splitlines().index('    json.loads("{")') + 1

SHORT_LIMITS = """
import campaign.admin.checks.workload as m, campaign.admin.checks.trial as t
t.CALL_S, m.SECONDS, m.MOST_MOVES = 1.0, 2.5, 6
from millrace.__main__ import main
main()
"""


def _package(site: Path, name: str, source: str, group: str, classes: dict[str, str]) -> None:
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (site / f"{name}.py").write_text(source)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    entries = "".join(f"{entry} = {name}:{made}\n" for entry, made in classes.items())
    (info / "entry_points.txt").write_text(f"[{group}]\n{entries}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder in which the packages above are installed."""
    folder = tmp_path_factory.mktemp("site")
    made = {
        f"bad-{name}": kind
        for name, kind in {
            "counting": "Counting", "hashing": "Hashing", "mutating": "Mutating", "clearing": "Clearing",
            "slow": "Slow", "plan": "Wrong", "broken": "Broken", "dying": "Dying", "needs": "Fastest",
            "missing": "Missing",
        }.items()
    }  # fmt: skip
    _package(folder, "bad_schedulers", SCHEDULERS, "millrace.schedulers", made)
    online = {
        "bad-revision": "Wrong", "bad-revising": "Broken", "bad-identity": "Identity", "bad-shared": "Shared",
        "bad-leaving": "Dying",
        "bad-observing": "Clearing", "leaving-a-child": "Parent", "bad-values": "Misspelt", "bad-rhythm": "Timeless",
    }  # fmt: skip
    _package(folder, "bad_online_schedulers", FAULTY_ONLINE.read_text(), "millrace.schedulers", online)
    _package(folder, "started_at_import", STARTING, "millrace.schedulers", {"bad-import": "Missing"})
    _package(folder, "sample_plugin", SAMPLE.read_text(), "millrace.workloads", {"sample-numbers": "Numbers"})
    kinds = ("Forgetful", "Speechless", "Failing", "Endless", "Hiding", "Chance", "Doubling")
    bad = {f"bad-{kind.lower()}": kind for kind in kinds} | {
        "bad-reference": "Wrong",
        "bad-fresh": "Fresh",
        "bad-leaving-input": "Leaving",
    }
    _package(folder, "bad_workloads", OPERATORS, "millrace.workloads", bad)
    return folder


def check(site: Path, runtime: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run `millrace check` with short limits; return its status and its document."""
    environment = {**os.environ, "PYTHONPATH": str(site), "XDG_RUNTIME_DIR": str(runtime), "TMPDIR": str(runtime)}
    command = [sys.executable, "-P", "-c", SHORT_LIMITS, "check", *arguments, "--json"]
    with TemporaryFile("w+") as err:
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=err) as process:
            assert process.stdout is not None
            status = process.wait(timeout=120)
            shown = os.read(process.stdout.fileno(), 1 << 16)
            # The pipe has ended with the command: a process that the plug-in leaves behind does not hold it open.
            ended, _, _ = select.select([process.stdout], [], [], 5)
            assert ended, "a process still holds the standard output of the check"
            assert not process.stdout.read()
        err.seek(0)
        errors = err.read()
    assert shown, errors
    assert "Traceback" not in errors
    assert not list(runtime.glob("millrace-*"))
    return status, json.loads(shown)


def failing(document: dict[str, Any]) -> dict[str, str]:
    assert document.keys() == {"ok", "checks"}
    assert all(entry.keys() == {"name", "ok", "message"} for entry in document["checks"])
    found = {entry["name"]: entry["message"] for entry in document["checks"] if not entry["ok"]}
    assert document["ok"] == (not found)
    return found


def further(name: str, check_name: str, words: str) -> object:
    """Return a case that runs only with `-m long`."""
    return pytest.param(name, check_name, words, marks=pytest.mark.long)


@pytest.mark.parametrize(
    ("name", "check_name", "words"),
    [
        ("bad-counting", "purity", "the same instance answers differently the second time: a[0] of chain is on n"),
        further("bad-hashing", "purity", "another process with another hash seed answers differently"),
        ("bad-mutating", "problem", "with traffic: it changes the traffic"),
        further("bad-clearing", "problem", "it changes the cluster: its view 'by_id'"),
        ("bad-slow", "time", "a chain on five equal nodes: no answer within"),
        ("bad-plan", "plans", "a[0]: slot 99 is beyond the 4 slots of 'n1'"),
        ("bad-broken", "plans", "raised KeyError: 'nothing' ("),
        further("bad-dying", "plans", "ended with status 1 in a chain on five equal nodes: that was it"),
        further("bad-needs", "needs", "without hardware it places differently, and `needs` does not say hardware=True"),
        ("bad-missing", "interface", "module 'bad_schedulers' has no attribute 'Missing'"),
        ("bad-import", "interface", "module 'started_at_import' has no attribute 'Missing'"),
    ],
)
def test_faults_of_a_scheduler_are_reported(site: Path, tmp_path: Path, name: str, check_name: str, words: str) -> None:
    status, document = check(site, tmp_path, "scheduler", name)
    assert status == 1
    assert words in failing(document)[check_name]


@pytest.mark.parametrize(
    ("name", "check_name", "words"),
    [
        (
            "bad-revision",
            "revisions",
            "a node is overloaded, at 70 s: the scheduler 'bad-revision' gave a wrong answer",
        ),
        (
            "bad-revising",
            "revisions",
            "a node is to be emptied, at 130 s: the scheduler 'bad-revising' raised KeyError",
        ),
        ("bad-leaving", "revisions", "the process of the check ended with status 7 in nothing is due, at 10 s"),
        ("bad-identity", "encoding", "nothing is due, at 20 s: it answers"),
        ("bad-shared", "encoding", "nothing is due, at 10 s: it answers"),
        ("bad-observing", "observed", "nothing is due, at 10 s: it changes the problem or the observation"),
        (
            "bad-values",
            "interface",
            "needs: traffic is 'requird'; did you mean 'required'?; needs: online is 1, expected bool",
        ),
        ("bad-rhythm", "interface", "rhythm is dict, a Rhythm was expected, since it has revise()"),
    ],
)
def test_faults_of_an_online_scheduler_are_reported(
    site: Path, tmp_path: Path, name: str, check_name: str, words: str
) -> None:
    status, document = check(site, tmp_path, "scheduler", name)
    assert status == 1
    assert words in failing(document)[check_name]
    # A fault in revise is no fault of the plans.
    assert check_name == "interface" or not failing(document).keys() & {"plans", "purity", "problem", "needs", "time"}


def test_a_process_that_a_scheduler_leaves_behind_does_not_matter(site: Path, tmp_path: Path) -> None:
    status, document = check(site, tmp_path, "scheduler", "leaving-a-child")
    assert failing(document) == {}
    assert status == 0
    found = {entry["name"]: entry["message"] for entry in document["checks"]}
    assert found["revisions"] == "asked 18 times, it changed something 0 times"


@pytest.mark.parametrize(
    ("name", "check_name", "words"),
    [
        ("bad-forgetful", "restore", "total[0]: after "),
        further("bad-doubling", "restore", "total[0]: its answer depends on the order in which states are merged"),
        ("bad-speechless", "snapshot", "snapshot() of speechless returned NoneType, expected bytes"),
        further("bad-failing", "operators", f"bad_workloads.py:{FAILING_LINE})"),
        ("bad-endless", "time", "process of total[0] did not return within"),
        further("bad-chance", "purity", "numbers[0]: two instances give "),
        ("bad-fresh", "input", "'token' differs when it is prepared again"),
        ("bad-leaving-input", "input", "the process of the check ended with status 7 in prepare"),
        ("bad-reference", "answer", "it differs from the reference: ('all',) = "),
        pytest.param(
            "bad-hiding", "moves", "wrong answer: ('all',) = ", marks=[pytest.mark.loopback, pytest.mark.long]
        ),
    ],
)
def test_faults_of_a_workload_are_reported(site: Path, tmp_path: Path, name: str, check_name: str, words: str) -> None:
    status, document = check(site, tmp_path, "workload", name)
    assert status == 1
    found = failing(document)
    assert words in found[check_name]
    assert (list(found) == ["moves"]) == (name == "bad-hiding")


@pytest.mark.loopback
def test_a_third_party_workload_passes_and_its_executors_move(site: Path, tmp_path: Path) -> None:
    status, document = check(site, tmp_path, "workload", "sample-numbers")
    assert failing(document) == {}
    assert status == 0
    (snapshot,) = [each["message"] for each in document["checks"] if each["name"] == "snapshot"]
    assert "; moved as a whole, as not all of it is KeyedState: state of total" in snapshot
    moved = document["checks"][-1]
    assert moved["name"] == "moves"
    assert int(moved["message"].split()[0]) > 0


@pytest.mark.parametrize("name", QUICKLY_CHECKED)
def test_built_in_schedulers_pass(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert_passes("scheduler", name, capfd)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in computing_schedulers() if name not in QUICKLY_CHECKED])
def test_every_other_built_in_scheduler_passes(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert_passes("scheduler", name, capfd)


# A tick of smart-home has tens of thousands of readings: three ticks take more than a minute.
@pytest.mark.loopback
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.soak if name == "smart-home" else pytest.mark.long)
        for name in plugins(WORKLOADS)
    ],
)
def test_every_built_in_workload_passes(
    name: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert_passes("workload", name, capfd)


def assert_passes(kind: str, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    status = run(["check", kind, name])
    shown = capfd.readouterr().out
    assert "NOT OK" not in shown
    assert status == 0
    assert shown.startswith("interface ok ")


def test_an_unknown_name_is_wrong_input_with_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "scheduler", "evne"]) == 2
    assert "unknown scheduler 'evne'; did you mean 'even'?" in capsys.readouterr().err
    assert run(["check", "workload", "wordcuont"]) == 2
    assert "did you mean 'wordcount'?" in capsys.readouterr().err

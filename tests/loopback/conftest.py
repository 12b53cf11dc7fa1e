"""Whole campaigns as a user starts them: `millrace run` as a process, with a state folder of its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from installing import install
from valid import checked

from controller.host.process_identity import ProcessIdentity, marked

MILLRACE = "from millrace.__main__ import main; main()"
"""The whole command."""

WITHOUT_REPORT = """\
import click
from millrace.__main__ import main
from campaign.commands import run

run.run_command.callback = click.pass_obj(lambda settings, no_report, **given: run.run_campaign(settings, **given)[0])
main()
"""
"""`millrace` whose `run` leaves out the report, which takes longer than the campaigns of most tests."""

LONG_S = 240.0
"""How long a test waits for what must come; never what it measures."""

CLUSTER = """\
nodes:
  - {id: n1, address: 127.0.0.2, slots: 2, cores: 2, ghz: 2.4, flops_per_cycle: 4}
  - {id: n2, address: 127.0.0.3, slots: 2, cores: 4, ghz: 3.2, flops_per_cycle: 8}
"""

AGENDA: Mapping[str, Any] = {
    "name": "short",
    "inventory": "two.yaml",
    "repetitions": 1,
    "order": "sequential",
    "warmup_s": 0.5,
    "duration_s": 1.5,
    "workloads": [
        {
            "name": "wordcount",
            "params": {"workers": 2, "ackers": 0, "parallelism": {"spout": 2, "split": 2, "count": 2}},
            "rate": {"kind": "constant", "tuples_per_s": 300},
        }
    ],
    "schedulers": ["even", "top-storm"],
}
"""Two runs on two nodes, a few seconds each."""


WITHOUT_SPARK = """\
import sys

sys.modules["pyspark"] = None
from millrace.__main__ import main

main()
"""
"""`millrace` on a machine where pyspark is not installed."""


class Desk:
    """An operator's desk: a folder with an agenda, and campaigns started from it.

    Attributes:
        packages: folders of third-party packages that are installed there.
    """

    whole, without_report, without_spark = MILLRACE, WITHOUT_REPORT, WITHOUT_SPARK

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state, self.temporary = folder / "state", folder / "tmp"
        self.state.mkdir()
        self.temporary.mkdir()
        (folder / "two.yaml").write_text(CLUSTER)
        self._started: list[subprocess.Popen[str]] = []
        self.packages: list[Path] = []

    def agenda(self, **changes: Any) -> str:
        """Write an agenda, a changed `AGENDA`; return its file name."""
        (self.folder / "agenda.json").write_text(json.dumps({**AGENDA, **changes}))
        return "agenda.json"

    @property
    def environment(self) -> dict[str, str]:
        """Of what is started from here."""
        own = {"XDG_STATE_HOME": str(self.state), "TMPDIR": str(self.temporary)}
        return {**os.environ, **own, **({"PYTHONPATH": ":".join(map(str, self.packages))} if self.packages else {})}

    def start(self, *arguments: str, program: str = WITHOUT_REPORT, **options: Any) -> subprocess.Popen[str]:
        """Start `millrace` with these arguments; it leads a session of its own, as under a terminal."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-P", "-c", program, *arguments],
            cwd=self.folder,
            env=self.environment,
            text=True,
            start_new_session=True,
            **(pipes | options),
        )
        self._started.append(process)
        return process

    def run(self, *arguments: str, program: str = WITHOUT_REPORT) -> "Outcome":
        """Run `millrace` to its end."""
        return self.end_of(self.start(*arguments, program=program))

    def end_of(self, process: subprocess.Popen[str], seconds: float = LONG_S) -> "Outcome":
        """Wait for a started `millrace`."""
        out, err = process.communicate(timeout=seconds)
        return Outcome(process.returncode, out, err)

    @property
    def campaign(self) -> Path:
        """The latest campaign's folder."""
        return (self.folder / "results" / "short" / "latest").resolve()

    def live(self) -> dict[str, Any]:
        """What the campaign under way says of itself; empty before it says anything."""
        try:
            found: dict[str, Any] = json.loads((self.campaign / "live.json").read_text())
        except FileNotFoundError:
            return {}
        return found

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for what must come."""
        deadline = time.monotonic() + LONG_S
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"{what} did not come; live: {self.live()}")
            time.sleep(0.05)

    def wait_for_stage(self, number: int, stage: str) -> None:
        """Wait until run `number` is in `stage`."""
        self.wait_for(
            lambda: (self.live().get("number"), self.live().get("stage")) == (number, stage), f"run {number}: {stage}"
        )

    def processes(self, role: str = "") -> list[ProcessIdentity]:
        """What runs from this desk: agents, workers, controllers; with `role` only those that are shown as such."""
        return self.programs(f"millrace-{role}") if role else marked(f"XDG_STATE_HOME={self.state}".encode())

    def programs(self, name: str) -> list[ProcessIdentity]:
        """What runs from this desk and is shown by that name."""
        return [process for process in self.processes() if _name(process) == name]

    def workers(self) -> list[ProcessIdentity]:
        """The workers that run from this desk."""
        return self.processes("worker")

    def wait_for_silence(self) -> None:
        """Wait until nothing runs any more that was started from here."""
        self.wait_for(lambda: not self.processes(), "the end of all processes")

    def state_files(self) -> list[Path]:
        """State files and locks of this desk's campaigns."""
        return list(self.state.glob("millrace/*/*"))

    def results(self) -> dict[str, dict[str, Any]]:
        """Run -> its run.json; all records are valid by their JSON Schemas."""
        for name in ("campaign", "live"):
            checked(name, self.campaign / f"{name}.json")
        return {path.parent.name: checked("run", path) for path in sorted(self.campaign.glob("runs/*/run.json"))}

    @staticmethod
    def doubts(run: dict[str, Any]) -> list[str]:
        """Return why a run is suspect, except that other tests use this host at the same time."""
        return [reason for reason in run["suspect"] if not reason.startswith("this host: ")]

    def close(self) -> None:
        """End what a failed test has left."""
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()


class Outcome:
    """How `millrace` ended."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    def __repr__(self) -> str:
        return f"status {self.status}\n--- out\n{self.out}\n--- err\n{self.err}"


def _name(process: ProcessIdentity) -> str:
    try:
        return Path(f"/proc/{process.pid}/comm").read_text().rstrip("\n")
    except OSError:
        return ""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared_desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A desk that all tests of a file use, for campaigns that they only look at."""
    made = Desk(tmp_path_factory.mktemp("desk"))
    yield made
    made.close()


SAMPLE = Path(__file__).parents[1] / "sample_plugin"


@pytest.fixture(scope="session")
def sample_plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder in which the sample package is installed."""
    work = tmp_path_factory.mktemp("sample")
    shutil.copytree(SAMPLE, work / "project", ignore=shutil.ignore_patterns("__pycache__"))
    return install(work / "project", work)

"""Fixtures for whole campaigns: `millrace run` as a process with its own state folder."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from package_install import install
from schema_validation import load_valid

from campaign.commands import main
from controller.host.process_identity import ProcessIdentity, marked

MILLRACE = "from millrace.__main__ import main; main()"
"""The complete command."""

WITHOUT_REPORT = """\
import click
from millrace.__main__ import main
from campaign.commands import run

run.run_command.callback = click.pass_obj(lambda settings, no_report, **given: run.run_campaign(settings, **given)[0])
main()
"""
"""`millrace` whose `run` skips the report, which takes longer than most campaigns of tests."""

TIMEOUT_S = 240.0
"""Timeout of waits; never a measured quantity."""

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
"""Agenda of two runs on two nodes, a few seconds each."""


WITHOUT_SPARK = """\
import sys

sys.modules["pyspark"] = None
from millrace.__main__ import main

main()
"""
"""`millrace` on a machine without pyspark."""


class Workspace:
    """A folder with an agenda, and campaigns started from it.

    Attributes:
        folder: working directory of the campaigns.
        state, temporary: their state folder and their TMPDIR.
        packages: folders of installed third-party packages.
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
        """Write an agenda, `AGENDA` with changes; return its file name."""
        (self.folder / "agenda.json").write_text(json.dumps({**AGENDA, **changes}))
        return "agenda.json"

    @property
    def environment(self) -> dict[str, str]:
        """Environment of started processes."""
        own = {"XDG_STATE_HOME": str(self.state), "TMPDIR": str(self.temporary)}
        return {**os.environ, **own, **({"PYTHONPATH": ":".join(map(str, self.packages))} if self.packages else {})}

    def start(self, *arguments: str, program: str = WITHOUT_REPORT, **options: Any) -> subprocess.Popen[str]:
        """Start `millrace` with these arguments in its own session, as on a terminal."""
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
        return self.wait_for_end(self.start(*arguments, program=program))

    def call(self, *arguments: str) -> "Outcome":
        """Run `millrace` in this process, which saves its start, where no run is started."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.chdir(self.folder)
            patch.setattr(tempfile, "tempdir", str(self.temporary))
            for name, value in self.environment.items():
                patch.setenv(name, value)
            status = main.run(arguments)
        return Outcome(status, out.getvalue(), err.getvalue())

    def wait_for_end(self, process: subprocess.Popen[str], seconds: float = TIMEOUT_S) -> "Outcome":
        """Wait for a started `millrace`."""
        out, err = process.communicate(timeout=seconds)
        return Outcome(process.returncode, out, err)

    @property
    def campaign(self) -> Path:
        """Folder of the latest campaign."""
        return (self.folder / "results" / "short" / "latest").resolve()

    def live(self) -> dict[str, Any]:
        """Return the live status of the running campaign; empty before there is one."""
        try:
            found: dict[str, Any] = json.loads((self.campaign / "live.json").read_text())
        except FileNotFoundError:
            return {}
        return found

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition."""
        deadline = time.monotonic() + TIMEOUT_S
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
        """Return processes started from this workspace; with `role` only those with that process title."""
        return self.programs(f"millrace-{role}") if role else marked(f"XDG_STATE_HOME={self.state}".encode())

    def programs(self, name: str) -> list[ProcessIdentity]:
        """Return processes started from this workspace with that process title."""
        return [process for process in self.processes() if _name(process) == name]

    def workers(self) -> list[ProcessIdentity]:
        """Return the workers started from this workspace."""
        return self.processes("worker")

    def wait_until_no_process(self) -> None:
        """Wait until all processes started from this workspace have ended."""
        self.wait_for(lambda: not self.processes(), "the end of all processes")

    def state_files(self) -> list[Path]:
        """Return state files and locks of this workspace's campaigns."""
        return list(self.state.glob("millrace/*/*"))

    def results(self) -> dict[str, dict[str, Any]]:
        """Return run -> its run.json; check all records against their JSON Schemas."""
        for name in ("campaign", "live"):
            load_valid(name, self.campaign / f"{name}.json")
        return {path.parent.name: load_valid("run", path) for path in sorted(self.campaign.glob("runs/*/run.json"))}

    @staticmethod
    def suspect_reasons(run: dict[str, Any]) -> list[str]:
        """Return why a run is suspect, without the load of other tests on this host."""
        return [reason for reason in run["suspect"] if not reason.startswith("this host: ")]

    def close(self) -> None:
        """Kill processes that a failed test has left."""
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()


class Outcome:
    """Exit status and output of `millrace`."""

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
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    made = Workspace(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared_workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """A workspace that all tests of a file share, for campaigns that they only read."""
    made = Workspace(tmp_path_factory.mktemp("workspace"))
    yield made
    made.close()


SAMPLE = Path(__file__).parents[1] / "sample_plugin"


@pytest.fixture(scope="session")
def sample_plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder in which the sample package is installed."""
    work = tmp_path_factory.mktemp("sample")
    shutil.copytree(SAMPLE, work / "project", ignore=shutil.ignore_patterns("__pycache__"))
    return install(work / "project", work)

"""An operator's desk for an emulated cluster: campaigns run with the command line, as processes, over real SSH."""

import difflib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from emulating import on

from controller.emulation.description import Description

MILLRACE = "from millrace.__main__ import main; main()"

WITHOUT_REPORT = """\
import click
from millrace.__main__ import main
from campaign.commands import run

run.run_command.callback = click.pass_obj(lambda settings, no_report, **given: run.run_campaign(settings, **given)[0])
main()
"""

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300.0
NODES = 5

FOUND = (
    "grep -rs . /sys/devices/system/cpu/cpu*/online /sys/devices/system/cpu/online "
    "/sys/devices/system/cpu/cpufreq/boost "
    "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor /sys/devices/system/cpu/cpufreq/policy*/scaling_m*_freq; "
    "ip -o link; tc qdisc; cat /etc/passwd /etc/group; ls /opt /var/lib /etc; "
    "stat -Lc '%n %a %U:%G' /sys/class/powercap/*/energy_uj"
)
"""What provisioning may change on a node."""


def command(*words: str, program: str = MILLRACE) -> list[str]:
    return [sys.executable, "-c", program, *words]


def millrace(*words: str, program: str = MILLRACE, seconds: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words, program=program), capture_output=True, text=True, check=False, timeout=seconds, cwd=ROOT
    )


def eventually(holds: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.2)
    return False


class Desk:
    """A folder with an inventory and agendas, and the cluster that is up."""

    def __init__(self, folder: Path, inventory: Path, description: Description) -> None:
        self.folder, self.inventory, self.description = folder, inventory, description

    def agenda(self, name: str, **changes: Any) -> Path:
        content = {
            "name": name,
            "inventory": str(self.inventory),
            "repetitions": 1,
            "warmup_s": 1,
            "duration_s": 4,
            "workloads": [
                {
                    "name": "wordcount",
                    "params": {"parallelism": {"spout": 2, "split": 3, "count": 3}},
                    "rate": {"kind": "constant", "tuples_per_s": 200},
                }
            ],
            "schedulers": ["even"],
            "sensors": ["cpu"],
        } | changes
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    def run(self, agenda: Path, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a campaign; a host that is too busy to be a cluster gets three attempts."""
        for _ in range(3):
            done = millrace("run", str(agenda), "--out", str(self.results), *words, program=WITHOUT_REPORT)
            _, short, reason = done.stderr.partition("calibration below the requested capacity")
            if done.returncode == 0 or not short:
                return done
        pytest.skip(f"host busy{reason.splitlines()[0]}")

    @property
    def results(self) -> Path:
        return self.folder / "results"

    def records(self, name: str) -> list[dict[str, Any]]:
        paths = sorted((self.results / name / "latest" / "runs").glob("*/run.json"))
        return [json.loads(path.read_text()) for path in paths]

    def stage(self, name: str) -> str:
        path = self.results / name / "latest" / "live.json"
        return str(json.loads(path.read_text()).get("stage")) if path.is_file() else ""

    def found(self) -> dict[str, list[str]]:
        return {f"n{node}": on(self.description, node, FOUND).stdout.splitlines() for node in range(1, NODES + 1)}

    def begun(self, agenda: Path) -> "subprocess.Popen[str]":
        """A campaign that has come to the measured interval."""
        run = subprocess.Popen(
            command("run", str(agenda), "--out", str(self.results), "--accept-shortfall", program=WITHOUT_REPORT),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
        )
        name = agenda.stem
        assert eventually(lambda: self.stage(name) == "measuring" or run.poll() is not None, 120)
        if run.poll() is not None:
            pytest.fail(f"it ended too early: {run.communicate()[0]}")
        return run

    def resumed(self, name: str) -> subprocess.CompletedProcess[str]:
        """Go on with the last campaign of that name."""
        folder = (self.results / name / "latest").resolve()
        return millrace("run", "--resume", str(folder), "--accept-shortfall", program=WITHOUT_REPORT)


def changes(before: dict[str, list[str]], after: dict[str, list[str]]) -> list[str]:
    """What is not as it was, by node."""
    return [
        f"{node}: {line}" for node in before for line in difflib.ndiff(before[node], after[node]) if line[0] in "+-"
    ]

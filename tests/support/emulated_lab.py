"""Campaigns on an emulated cluster, run by the command line as processes over real SSH."""

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
from emulated_clusters import run_on

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
TIMEOUT_S = 300.0
NODES = 5

STATE_COMMAND = (
    "grep -rs . /sys/devices/system/cpu/cpu*/online /sys/devices/system/cpu/online "
    "/sys/devices/system/cpu/cpufreq/boost "
    "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor /sys/devices/system/cpu/cpufreq/policy*/scaling_m*_freq; "
    "ip -o link; tc qdisc; cat /etc/passwd /etc/group; ls /opt /var/lib /etc; "
    "stat -Lc '%n %a %U:%G' /sys/class/powercap/*/energy_uj"
)
"""Command that prints what provisioning may change on a node."""


def command(*arguments: str, program: str = MILLRACE) -> list[str]:
    return [sys.executable, "-c", program, *arguments]


def millrace(*arguments: str, program: str = MILLRACE, seconds: float = TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments, program=program), capture_output=True, text=True, check=False, timeout=seconds, cwd=ROOT
    )


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.2)
    return False


class EmulatedLab:
    """A running emulated cluster, and the folder of its inventory, agendas and results."""

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

    def run(self, agenda: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a campaign, up to three times while the host is too busy for the emulated capacity, then skip."""
        for _ in range(3):
            result = millrace("run", str(agenda), "--out", str(self.results), *arguments, program=WITHOUT_REPORT)
            _, short, reason = result.stderr.partition("calibration below the requested capacity")
            if result.returncode == 0 or not short:
                return result
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

    def node_state(self) -> dict[str, list[str]]:
        return {
            f"n{node}": run_on(self.description, node, STATE_COMMAND).stdout.splitlines()
            for node in range(1, NODES + 1)
        }

    def start_until_measuring(self, agenda: Path) -> "subprocess.Popen[str]":
        """Start a campaign and wait for its measured interval."""
        run = subprocess.Popen(
            command("run", str(agenda), "--out", str(self.results), "--accept-shortfall", program=WITHOUT_REPORT),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
        )
        name = agenda.stem
        assert wait_for(lambda: self.stage(name) == "measuring" or run.poll() is not None, 120)
        if run.poll() is not None:
            pytest.fail(f"it ended too early: {run.communicate()[0]}")
        return run

    def resume(self, name: str) -> subprocess.CompletedProcess[str]:
        """Resume the last campaign of that name."""
        folder = (self.results / name / "latest").resolve()
        return millrace("run", "--resume", str(folder), "--accept-shortfall", program=WITHOUT_REPORT)


def changes(before: dict[str, list[str]], after: dict[str, list[str]]) -> list[str]:
    """Return the lines that differ between two results of `node_state`, by node."""
    return [
        f"{node}: {line}" for node in before for line in difflib.ndiff(before[node], after[node]) if line[0] in "+-"
    ]

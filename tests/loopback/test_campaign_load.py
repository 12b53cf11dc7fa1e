"""Load of other processes on a host that is all nodes makes a run suspect, and is counted once."""

import subprocess
import sys

import psutil
import pytest

from agents.host.facts import gather
from analysis.page.noisy_settings import before_a_run

pytestmark = [pytest.mark.loopback, pytest.mark.long]

BURN = "print('in', flush=True)\nwhile True: pass"


def test_a_run_beside_other_processes_is_suspect_with_their_share_of_the_host(workspace) -> None:
    cores = psutil.cpu_count() or 1
    others = [subprocess.Popen([sys.executable, "-S", "-c", BURN], stdout=subprocess.PIPE) for _ in range(cores)]
    try:
        for other in others:
            assert other.stdout is not None
            other.stdout.readline()
        outcome = workspace.run("run", workspace.agenda(schedulers=["even"]))
    finally:
        for other in others:
            other.kill()
            other.communicate()
    assert outcome.status == 0, outcome
    (record,) = workspace.results().values()
    assert record["status"] == "ok"
    (reason,) = record["suspect"]
    start, _, end = reason.partition("%")
    assert start.startswith("this host: ")
    assert end == " of all cores worked for others than this run in the measured interval"
    # Three hundred tuples per second take little of a core, and the other processes want all cores.
    assert 40 <= int(start.removeprefix("this host: ")) <= 100


def test_noisy_settings_of_the_machine_are_reported_once_before_the_first_run(workspace) -> None:
    outcome = workspace.run("run", workspace.agenda(schedulers=["even", "top-storm"], duration_s=1))
    assert outcome.status == 0, outcome
    is_noisy = bool(before_a_run({"n1": gather()}, None, 1))
    assert outcome.err.count("can make figures vary") == is_noisy
    if is_noisy:
        assert "n1, n2: can make figures vary: " in outcome.err

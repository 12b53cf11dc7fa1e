"""What others do on a host that stands in for all nodes is a reason to suspect a run, and counted once."""

import subprocess
import sys

import psutil
import pytest

from agents.host.facts import gather
from analysis.noisy_settings import before_a_run

pytestmark = [pytest.mark.loopback, pytest.mark.long]

BURN = "print('in', flush=True)\nwhile True: pass"


def test_a_run_beside_others_work_is_suspect_and_says_how_much_of_the_host_worked_for_them(workspace) -> None:
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
    words, _, rest = reason.partition("%")
    assert words.startswith("this host: ")
    assert rest == " of all cores worked for others than this run in the measured interval"
    # Of three hundred tuples a second nothing is left of a core, and the others want all of them.
    assert 40 <= int(words.removeprefix("this host: ")) <= 100


def test_the_machine_is_looked_at_once_before_the_first_run(workspace) -> None:
    outcome = workspace.run("run", workspace.agenda(schedulers=["even", "top-storm"], duration_s=1))
    assert outcome.status == 0, outcome
    is_noisy = bool(before_a_run({"n1": gather()}, None, 1))
    assert outcome.err.count("can make figures vary") == is_noisy
    if is_noisy:
        assert "n1, n2: can make figures vary: " in outcome.err

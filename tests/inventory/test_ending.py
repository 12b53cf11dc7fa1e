"""Processes that receive SIGTERM, once or repeatedly."""

import signal
import subprocess
import sys
from pathlib import Path

SLOW_TO_CLEAN_UP = """
import sys, time
from inventory.parent_death import leave_on_sigterm
leave_on_sigterm()
try:
    print("ready", flush=True)
    time.sleep(60)
finally:
    print("cleaning", flush=True)
    sys.stdin.read()
    print("clean", flush=True)
"""


def test_a_second_sigterm_does_not_disturb_the_clean_up_after_the_first() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_TO_CLEAN_UP],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in ("ready", "cleaning"):
            assert process.stdout.readline().strip() == line
            process.send_signal(signal.SIGTERM)
        process.stdin.close()
        assert process.stdout.read().strip() == "clean"
    assert process.returncode == 128 + signal.SIGTERM


def test_a_process_whose_clean_up_hangs_is_ended_by_the_system() -> None:
    code = "from inventory import parent_death\nparent_death.LEAVING_S = 1\n" + SLOW_TO_CLEAN_UP
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline().strip() == "cleaning"
        assert process.wait(timeout=30) == -signal.SIGALRM

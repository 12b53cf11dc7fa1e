"""A process that is told to end, once or more often."""

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


def test_a_second_sigterm_does_not_disturb_what_cleans_up_after_the_first() -> None:
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
        for said in ("ready", "cleaning"):
            assert process.stdout.readline().strip() == said
            process.send_signal(signal.SIGTERM)
        process.stdin.close()
        assert process.stdout.read().strip() == "clean"
    assert process.returncode == 128 + signal.SIGTERM

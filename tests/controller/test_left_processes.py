"""A process that a scheduler leaves behind, outside of its session and with its pipes open, causes no traceback."""

import subprocess
import sys
from pathlib import Path

CONTROLLER = """
import asyncio, gc, sys
from pathlib import Path
from controller.coordinator.decider import Decider
from scheduler.deciding import SchedulerInFile

async def main():
    files, command = Path(sys.argv[1]), (sys.executable, "-c", sys.argv[2])
    decider = Decider(SchedulerInFile("even"), files / "decisions.jsonl", files / "log", 5, command)
    await decider.start()
    await decider.close()

asyncio.run(main())
gc.collect()
"""

SCHEDULER = """
import json, subprocess, sys
sys.stdin.readline()
subprocess.Popen(["sleep", "3"], start_new_session=True)
print(json.dumps({"number": 0, "cpu_s": 0.1}), flush=True)
sys.stdin.readline()
"""


def test_a_process_that_a_scheduler_leaves_behind_causes_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CONTROLLER, str(tmp_path), SCHEDULER]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert found.stderr == ""

"""Measure the time to provision, verify and restore five emulated nodes.

    .venv/bin/python benchmarks/provision.py

Needs root. The nodes are those of the shipped inventory, in a temporary folder. The agents' environment must have been
built before. Peers of the second run are `ansible-playbook` with the same playbook, and an Ansible play with as many
`ping` tasks.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
SHIPPED = ROOT / "inventory" / "emulated.yml"
MILLRACE = [sys.executable, "-c", "from millrace.__main__ import main; main()"]
PLAYBOOK = [sys.executable, "-P", "-m", "ansible", "playbook"]


def timed(name: str, command: Sequence[str]) -> str:
    """Run a command, print its wall time, and return its output."""
    load, begin = os.getloadavg()[0], time.perf_counter()
    completed = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    seconds = time.perf_counter() - begin
    if completed.returncode != 0:
        raise SystemExit(f"{name}: {completed.stdout[-2000:]}{completed.stderr[-2000:]}")
    print(f"{name:<44} {seconds:6.1f} s   load {load:.1f}", flush=True)
    return completed.stdout


def write_ping_playbook(path: Path, tasks: int) -> Path:
    """Write a playbook of `tasks` ping tasks; return its path."""
    ping = {"name": "Ping", "ansible.builtin.ping": {}}
    path.write_text(yaml.safe_dump([{"hosts": "workers", "gather_facts": False, "tasks": [ping] * tasks}]))
    return path


def main() -> None:
    """Run the benchmark."""
    with tempfile.TemporaryDirectory(prefix="millrace-provision-") as name:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = name
        inventory = folder / "emulated.yml"
        inventory.write_text(SHIPPED.read_text().replace("/run/millrace/emulated", str(folder / "cluster")))
        try:
            timed("provision, nodes not yet up", [*MILLRACE, "provision", str(inventory)])
            recap = timed("provision again", [*MILLRACE, "provision", str(inventory)])
            tasks = max(map(int, re.findall(r"ok=(\d+)", recap)))
            if set(re.findall(r"changed=(\d+)", recap)) != {"0"}:
                raise SystemExit(f"the second run changes nodes:\n{recap}")
            timed(
                "the same by ansible-playbook, quotas in force",
                [*PLAYBOOK, "-i", str(inventory), "ansible/provision.yml"],
            )
            timed(
                f"{tasks} pings by ansible-playbook",
                [*PLAYBOOK, "-i", str(inventory), str(write_ping_playbook(folder / "pings.yml", tasks))],
            )
            timed("verify", [*MILLRACE, "verify", str(inventory)])
            timed("restore", [*MILLRACE, "restore", str(inventory)])
        finally:
            subprocess.run([*MILLRACE, "clean", str(inventory)], capture_output=True, check=False)


if __name__ == "__main__":
    main()

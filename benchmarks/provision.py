"""How long provisioning takes: five emulated nodes, first and second time, verified, restored.

    .venv/bin/python benchmarks/provision.py

Needs root. The nodes are those of the shipped inventory, in a folder of their own; what agents need has been built
before, as it has for every cluster but the first. Beside the second time stands Ansible itself: a play with as many
tasks that only say `pong`.
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
    """Run it, and print how long it took; what it printed."""
    load, begin = os.getloadavg()[0], time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    took = time.perf_counter() - begin
    if done.returncode != 0:
        raise SystemExit(f"{name}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    print(f"{name:<44} {took:6.1f} s   load {load:.1f}", flush=True)
    return done.stdout


def pongs(path: Path, tasks: int) -> Path:
    """A playbook that does nothing so many times."""
    ping = {"name": "Answer", "ansible.builtin.ping": {}}
    path.write_text(yaml.safe_dump([{"hosts": "workers", "gather_facts": False, "tasks": [ping] * tasks}]))
    return path


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="millrace-provision-") as name:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = name
        inventory = folder / "emulated.yml"
        inventory.write_text(SHIPPED.read_text().replace("/run/millrace/emulated", str(folder / "cluster")))
        try:
            timed("provision, nodes not up yet", [*MILLRACE, "provision", str(inventory)])
            recap = timed("provision again", [*MILLRACE, "provision", str(inventory)])
            tasks = max(map(int, re.findall(r"ok=(\d+)", recap)))
            if set(re.findall(r"changed=(\d+)", recap)) != {"0"}:
                raise SystemExit(f"the second time changes something:\n{recap}")
            timed(
                "the same by ansible-playbook, quotas in force",
                [*PLAYBOOK, "-i", str(inventory), "ansible/provision.yml"],
            )
            timed(
                f"{tasks} pings by ansible-playbook",
                [*PLAYBOOK, "-i", str(inventory), str(pongs(folder / "pongs.yml", tasks))],
            )
            timed("verify", [*MILLRACE, "verify", str(inventory)])
            timed("restore", [*MILLRACE, "restore", str(inventory)])
        finally:
            subprocess.run([*MILLRACE, "clean"], capture_output=True, check=False)


if __name__ == "__main__":
    main()

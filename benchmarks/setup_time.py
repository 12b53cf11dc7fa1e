"""Measure `./run setup` in a fresh clone: without caches, with caches, and with nothing left to do.

    python3 benchmarks/setup_time.py

Uses a temporary folder as home, so that the caches of this machine are not used. Needs the network, and about 3 GB of
temporary space. The clone has the last commit, without changes of the working tree.
"""

import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def measure_setup(checkout: Path, home: Path) -> tuple[float, list[str]]:
    """Return the wall time of `./run setup`, and the lines that it prints about its steps."""
    environment = {**os.environ, "HOME": str(home)}
    for name in ("XDG_CACHE_HOME", "UV_CACHE_DIR", "PIP_CACHE_DIR"):
        environment.pop(name, None)
    begin = time.perf_counter()
    completed = subprocess.run(
        [str(checkout / "run"), "setup"], env=environment, stderr=subprocess.PIPE, text=True, check=False
    )
    seconds = time.perf_counter() - begin
    if completed.returncode != 0:
        raise SystemExit(completed.stderr)
    return seconds, re.findall(r"^\[.*$", completed.stderr, re.MULTILINE)


def main() -> None:
    """Run the benchmark."""
    with tempfile.TemporaryDirectory(prefix="millrace-setup-") as folder:
        checkout, home = Path(folder) / "checkout", Path(folder) / "home"
        home.mkdir()
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout)], check=True)
        commit = subprocess.run(
            ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True
        ).stdout.strip()
        print(f"commit {commit}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
        for name in ("cold: no cache", "warm: cache, no environment", "again: nothing to do"):
            if name.startswith("warm"):
                shutil.rmtree(checkout / ".venv")
            seconds, steps = measure_setup(checkout, home)
            print(f"{name:28} {seconds:7.2f} s")
            for step in steps:
                print(f"    {step}")


if __name__ == "__main__":
    main()

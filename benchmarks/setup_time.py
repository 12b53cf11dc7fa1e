"""How long `./run setup` takes: in a fresh clone without any cache, again with the cache, and when all is done.

    python3 benchmarks/setup_time.py

Works in a temporary folder with a home folder of its own, so that nothing of this machine's caches helps; needs the
network, and about 3 GB there. What is committed is measured, not what is only in the working tree.
"""

import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def setup(checkout: Path, home: Path) -> tuple[float, list[str]]:
    """Seconds that `./run setup` takes, and what it says of its steps."""
    environment = {**os.environ, "HOME": str(home)}
    for name in ("XDG_CACHE_HOME", "UV_CACHE_DIR", "PIP_CACHE_DIR"):
        environment.pop(name, None)
    begin = time.perf_counter()
    done = subprocess.run(
        [str(checkout / "run"), "setup"], env=environment, stderr=subprocess.PIPE, text=True, check=False
    )
    took = time.perf_counter() - begin
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return took, re.findall(r"^\[.*$", done.stderr, re.MULTILINE)


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="millrace-setup-") as folder:
        checkout, home = Path(folder) / "checkout", Path(folder) / "home"
        home.mkdir()
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout)], check=True)
        commit = subprocess.run(
            ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True
        ).stdout.strip()
        print(f"commit {commit}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
        for name in ("cold: no cache", "warm: cache, no environment", "again: all is there"):
            if name.startswith("warm"):
                shutil.rmtree(checkout / ".venv")
            took, steps = setup(checkout, home)
            print(f"{name:28} {took:7.2f} s")
            for step in steps:
                print(f"    {step}")


if __name__ == "__main__":
    main()

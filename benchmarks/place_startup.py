"""Measure the wall time of `millrace place`, beside a Python that does nothing.

    .venv/bin/python benchmarks/place_startup.py [--repetitions N] [--topology T]

Both start alternately, so that other load on the machine affects both. Prints medians, quartiles, and the ratio of the
medians, which is comparable between machines.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOPOLOGY = """
id: wordcount
workers: 5
components:
  - {id: spout, kind: spout, parallelism: 6}
  - {id: split, kind: bolt, parallelism: 18, inputs: [{from: spout, grouping: shuffle}]}
  - {id: count, kind: bolt, parallelism: 8, inputs: [{from: split, grouping: fields, fields: [word]}]}
"""


def timed(command: list[str]) -> float:
    """Return the wall time of `command`."""
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=21)
    parser.add_argument("--topology", type=Path, help="a topology file (default: word count, 32 executors)")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        topology = chosen.topology or Path(folder) / "wordcount.yml"
        if not chosen.topology:
            topology.write_text(TOPOLOGY)
        place = [str(Path(sys.executable).with_name("millrace")), "place", "--cluster", "loopback", "--json"]
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            **{
                f"millrace place ({name})": [*place, "--topology", str(topology), "--scheduler", name]
                for name in ("even", "top-storm")
            },
        }
        for command in commands.values():
            timed(command)  # warm-up: file cache and compiled modules
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(chosen.repetitions):
            for name, command in commands.items():
                times[name].append(timed(command))
    base = statistics.median(times["python -c pass"])
    print(f"{chosen.repetitions} repetitions, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    for name, values in times.items():
        low, middle, high = (1e3 * value for value in statistics.quantiles(values, n=4))
        spread = f"quartiles {low:.0f}, {high:.0f}"
        print(f"{name:26} median {middle:6.0f} ms ({spread}), ratio {middle / base / 1e3:.1f}")


if __name__ == "__main__":
    main()

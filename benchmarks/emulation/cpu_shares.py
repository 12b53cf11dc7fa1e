"""Measure the CPU shares of emulated nodes against the configured ones: each node alone, and all busy at once.

    .venv/bin/python benchmarks/emulation/cpu_shares.py [--rounds N]

Needs root. The cluster is that of `inventory/emulated.yml`, in a temporary folder. Every figure stands beside the
configured share: a node must not exceed it, and should reach it.
"""

import argparse
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from controller.emulation.calibration import measure_busy_cores, node_groups
from controller.emulation.cluster import ask, bring_up
from controller.emulation.description import Description, request_of
from inventory.ansible_hosts import load_hosts
from inventory.reading import shipped_inventories

FOLDER = "/run/millrace/emulated"
"""Folder of the cluster in the shipped inventory."""


@contextmanager
def emulated_cluster(folder: Path) -> Iterator[Description]:
    """Bring up the shipped cluster in `folder`; yield its description."""
    inventory = folder / "emulated.yml"
    inventory.write_text(shipped_inventories()["emulated"].read_text().replace(FOLDER, str(folder / "cluster")))
    running = bring_up(request_of(load_hosts(inventory)), lambda _part: None)
    try:
        yield running.description
    finally:
        running.down()


def print_shares(description: Description, rounds: int) -> None:
    """Measure and print the shares of all nodes."""
    shares = ask(Path(description.request.folder), "limit").shares
    groups = node_groups(description)
    alone, concurrent = defaultdict(list), defaultdict(list)
    for _ in range(rounds):
        for name, group in groups.items():
            alone[name].append(measure_busy_cores({name: group}, shares)[name])
        for name, cores in measure_busy_cores(groups, shares).items():
            concurrent[name].append(cores)
    print("| node | cores configured | alone: median | error | minimum | all at once: median | error | minimum |")
    print("|---|---|---|---|---|---|---|---|")
    for name, share in shares.items():
        print(f"| {name} | {share:.3g} | {table_cells(alone[name], share)} | {table_cells(concurrent[name], share)} |")
    total = sum(shares.values())
    sums = [sum(one) for one in zip(*concurrent.values(), strict=True)]
    print(f"| sum | {total:.3g} | | | | {table_cells(sums, total)} |")


def table_cells(cores: list[float], share: float) -> str:
    """Return the median, its error, and the error of the minimum."""
    middle = median(cores)
    return f"{middle:.3f} | {(middle / share - 1) * 100:+.1f} % | {(min(cores) / share - 1) * 100:+.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="measurements per node (default: 5)")
    rounds = parser.parse_args().rounds
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, medians of {rounds}\n")
    with tempfile.TemporaryDirectory() as folder, emulated_cluster(Path(folder)) as description:
        print_shares(description, rounds)
    print(f"\nload {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()

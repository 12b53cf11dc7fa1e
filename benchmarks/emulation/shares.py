"""CPU shares of the nodes of an emulated cluster, asked and got: each alone, and all busy at once.

    .venv/bin/python benchmarks/emulation/shares.py [--rounds N]

Needs root. The cluster is that of `inventory/emulated.yml`, in a folder of its own. The limit beside every figure is
what was asked for: a node must get no more, and should get no less.
"""

import argparse
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from controller.emulation.calibration import groups_of, measure_busy_cores
from controller.emulation.cluster import ask, bring_up
from controller.emulation.description import Description, request_of
from inventory.ansible_hosts import load_hosts
from inventory.reading import shipped_inventories

FOLDER = "/run/millrace/emulated"
"""Where the shipped inventory has its cluster."""


@contextmanager
def cluster(folder: Path) -> Iterator[Description]:
    inventory = folder / "emulated.yml"
    inventory.write_text(shipped_inventories()["emulated"].read_text().replace(FOLDER, str(folder / "cluster")))
    running = bring_up(request_of(load_hosts(inventory)), lambda _part: None)
    try:
        yield running.description
    finally:
        running.down()


def measured(description: Description, rounds: int) -> None:
    shares = ask(Path(description.request.folder), "limit").shares
    groups = groups_of(description)
    alone, together = defaultdict(list), defaultdict(list)
    for _ in range(rounds):
        for name, group in groups.items():
            alone[name].append(measure_busy_cores({name: group}, shares)[name])
        for name, got in measure_busy_cores(groups, shares).items():
            together[name].append(got)
    print("| node | cores asked | alone: got | off | least | all at once: got | off | least |")
    print("|---|---|---|---|---|---|---|---|")
    for name, share in shares.items():
        print(f"| {name} | {share:.3g} | {shown(alone[name], share)} | {shown(together[name], share)} |")
    total = sum(shares.values())
    sums = [sum(one) for one in zip(*together.values(), strict=True)]
    print(f"| sum | {total:.3g} | | | | {shown(sums, total)} |")


def shown(got: list[float], asked: float) -> str:
    middle = median(got)
    return f"{middle:.3f} | {(middle / asked - 1) * 100:+.1f} % | {(min(got) / asked - 1) * 100:+.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured")
    rounds = parser.parse_args().rounds
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, medians of {rounds}\n")
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder)) as description:
        measured(description, rounds)
    print(f"\nload {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()

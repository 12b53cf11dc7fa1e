"""Links of an emulated network: rate and round trip, asked and got; and how much one relay carries.

    .venv/bin/python benchmarks/emulation/links.py [--seconds S]

Needs root. The limit beside every figure is what was asked for: a link must get no more, and should get no less.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from analysis.conditions import Calibrated
from controller.emulation.calibration import measure_rate, measure_round_trip
from controller.emulation.network import EmulatedNetwork, NetworkPlan, choose_shaping, new_prefix
from inventory.emulation import Link

RATES = (1, 10, 100, 500, 1000)
DELAYS = (0.25, 0.5, 1, 5, 20)
ROUND_TRIPS = 200


class Unwritten:
    """A ledger for a program that takes its networks down itself."""

    def namespace(self, name: str) -> None:
        pass


@contextmanager
def network(links: list[Link], log: Path) -> Iterator[NetworkPlan]:
    nodes = dict.fromkeys(name for link in links for name in (link.sender, link.receiver))
    plan = NetworkPlan(new_prefix(), tuple(nodes), tuple(links))
    with EmulatedNetwork(plan, Unwritten(), log):
        yield plan


def both_ways(one: str, other: str, rate: float | None, delay: float) -> list[Link]:
    return [Link(one, other, rate, delay), Link(other, one, rate, delay)]


def shown(one: Calibrated) -> str:
    return f"{one.asked:g} | {one.got:.4g} | {one.error * 100:+.1f} %"


def relay_cpu(log: Path) -> tuple[float, float]:
    """CPU seconds of the last relay, and the longest that it was late, in ms."""
    account = json.loads(log.read_text().splitlines()[-1])
    return account["cpu_s"], account["latest_s"] * 1000


def rates(log: Path, seconds: float) -> None:
    print("| shaped by | one-way delay, ms | Mbit/s asked | got | off |\n|---|---|---|---|---|")
    for delay in (0, 0.5):
        for rate in RATES:
            with network(both_ways("n1", "n2", rate, delay), log) as plan:
                got = measure_rate(plan, plan.links[0], seconds)
            print(f"| {choose_shaping(plan.links)} | {delay:g} | {shown(got)} |", flush=True)


def round_trips(log: Path) -> None:
    print("\n| shaped by | one-way delay, ms | round trip asked, ms | got, median | off |\n|---|---|---|---|---|")
    for delay in DELAYS:
        with network(both_ways("n1", "n2", None, delay), log) as plan:
            got = measure_round_trip(plan, plan.links[0], ROUND_TRIPS)
        print(f"| {choose_shaping(plan.links)} | {delay:g} | {shown(got)} |", flush=True)


def together(log: Path, seconds: float) -> None:
    """Several links of one network at the same time, all in one relay where the kernel has no netem."""
    print("\n| links at once | Mbit/s asked, each | got, sum | of what was asked | relay, CPU s per s | latest, ms |")
    print("|---|---|---|---|---|---|")
    for count, rate in ((1, 1000), (2, 1000), (4, 1000), (4, 100), (10, 100), (10, 10)):
        links = [link for at in range(count) for link in both_ways(f"a{at}", f"b{at}", rate, 0.5)]
        with network(links, log) as plan, get_context("fork").Pool(count) as pool:
            got = pool.map(partial(measure_rate, plan, seconds=seconds), links[::2], chunksize=1)
        total = sum(one.got for one in got)
        tail = "| | |"
        if choose_shaping(links) == "relay":
            cpu, late = relay_cpu(log)
            # Measuring begins after a warm-up of 0.1 s.
            tail = f"| {cpu / (seconds + 0.1):.2f} | {late:.1f} |"
        print(f"| {count} | {rate} | {total:.0f} | {total / (count * rate):.3f} {tail}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each rate is measured")
    seconds = parser.parse_args().seconds
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "relay.log"
        rates(log, seconds)
        round_trips(log)
        together(log, seconds)
    print(f"\nload {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()

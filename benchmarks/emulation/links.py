"""Measure rate and round trip of emulated links against the configured values, and the capacity of one relay.

    .venv/bin/python benchmarks/emulation/links.py [--seconds S]

Needs root. Every figure stands beside the configured value: a link must not exceed it, and should reach it.
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

from analysis.records.conditions import Calibrated
from controller.emulation.calibration import measure_rate, measure_round_trip
from controller.emulation.network import EmulatedNetwork, NetworkPlan, choose_shaping, new_prefix
from inventory.emulation import LinkSettings

RATES = (1, 10, 100, 500, 1000)
DELAYS = (0.25, 0.5, 1, 5, 20)
ROUND_TRIPS = 200


class NullLedger:
    """Ledger that records nothing; this program removes its networks itself."""

    def namespace(self, name: str) -> None:
        pass


@contextmanager
def emulated_network(links: list[LinkSettings], log: Path) -> Iterator[NetworkPlan]:
    """Bring up a network of the links; yield its plan."""
    nodes = dict.fromkeys(name for link in links for name in (link.sender, link.receiver))
    plan = NetworkPlan(new_prefix(), tuple(nodes), tuple(links))
    with EmulatedNetwork(plan, NullLedger(), log):
        yield plan


def link_pair(one: str, other: str, rate: float | None, delay: float) -> list[LinkSettings]:
    """Return the links of both directions; Mbit/s and one-way ms."""
    return [LinkSettings(one, other, rate, delay), LinkSettings(other, one, rate, delay)]


def table_cells(one: Calibrated) -> str:
    """Return configured value, measured value and error."""
    return f"{one.asked:g} | {one.got:.4g} | {one.error * 100:+.1f} %"


def relay_cpu(log: Path) -> tuple[float, float]:
    """Return the CPU seconds of the last relay, and its largest lateness in ms."""
    account = json.loads(log.read_text().splitlines()[-1])
    return account["cpu_s"], account["latest_s"] * 1000


def print_rates(log: Path, seconds: float) -> None:
    """Measure and print the rates of single links."""
    print("| shaped by | one-way delay, ms | Mbit/s configured | measured | error |\n|---|---|---|---|---|")
    for delay in (0, 0.5):
        for rate in RATES:
            with emulated_network(link_pair("n1", "n2", rate, delay), log) as plan:
                measured = measure_rate(plan, plan.links[0], seconds)
            print(f"| {choose_shaping(plan.links)} | {delay:g} | {table_cells(measured)} |", flush=True)


def print_round_trips(log: Path) -> None:
    """Measure and print the round trips of single links."""
    head = "| shaped by | one-way delay, ms | round trip configured, ms | measured, median | error |"
    print(f"\n{head}\n|---|---|---|---|---|")
    for delay in DELAYS:
        with emulated_network(link_pair("n1", "n2", None, delay), log) as plan:
            measured = measure_round_trip(plan, plan.links[0], ROUND_TRIPS)
        print(f"| {choose_shaping(plan.links)} | {delay:g} | {table_cells(measured)} |", flush=True)


def print_concurrent_links(log: Path, seconds: float) -> None:
    """Measure and print several busy links of one network; without netem, one relay carries all of them."""
    print("\n| busy links | Mbit/s configured, each | measured, sum | share | relay, CPU s per s | max lateness, ms |")
    print("|---|---|---|---|---|---|")
    for count, rate in ((1, 1000), (2, 1000), (4, 1000), (4, 100), (10, 100), (10, 10)):
        links = [link for at in range(count) for link in link_pair(f"a{at}", f"b{at}", rate, 0.5)]
        with emulated_network(links, log) as plan, get_context("fork").Pool(count) as pool:
            measured = pool.map(partial(measure_rate, plan, seconds=seconds), links[::2], chunksize=1)
        total = sum(one.got for one in measured)
        relay_cells = "| | |"
        if choose_shaping(links) == "relay":
            cpu, late = relay_cpu(log)
            # Measurement begins after a warm-up of 0.1 s.
            relay_cells = f"| {cpu / (seconds + 0.1):.2f} | {late:.1f} |"
        print(f"| {count} | {rate} | {total:.0f} | {total / (count * rate):.3f} {relay_cells}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds per rate (default: 2)")
    seconds = parser.parse_args().seconds
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "relay.log"
        print_rates(log, seconds)
        print_round_trips(log)
        print_concurrent_links(log, seconds)
    print(f"\nload {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()

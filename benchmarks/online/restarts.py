"""How long a topology puts out nothing when a revision restarts it, in kept processes and in new ones.

    .venv/bin/python benchmarks/online/restarts.py [--restarts 10] [--keepers 18] [--state-kb 10] [--nodes 3]

Two spouts and many keepers with little state, dealt over the nodes, at a rate far below what they take. A tenth of the
executors goes to the next node, by turns by a restart and live, in the same run; one run keeps the processes, the other
starts new ones. Pause: from the last batch of any keeper before a restart to the first of any keeper after it; live, of
the keepers that move, from the last batch in one slot to the first in the next. The limits are 0.5 s with kept
processes and 3 s with new ones, without `wait_s`. Every answer is compared with the reference.

The second table has what a restart passes through, medians in ms: each step ends with the last report of its kind.

Example: .venv/bin/python benchmarks/online/restarts.py --restarts 3
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from time import monotonic_ns, process_time
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "dataplane"))

from loopback import Ground, Play, cpu_s, diary, load, nodes, processes, wait

from agents.protocol import Connect, Connected, Cut, Go, Listening, Message, Move, Passed, Ready, Slot, Start, Stored
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.interfaces import RestartRules
from workloads.workload import load_workload

LIMITS_S = {"kept": 0.5, "new": 3.0}
VALUE_BYTES = 100
SPOUTS = 2
RATE = 20_000.0
SETTLE_S = 1.5
STEPS = (
    ("ready", Ready),
    ("cut, passed", Passed),
    ("stored by workers", Stored),
    ("copied", Start),
    ("workers listen", Listening),
    ("connected", Connected),
    ("sources start", Go),
)
"""Steps of a restart, and the messages of which the last one ends it."""


class Steps:
    """When the messages of a restart were sent or received, the last of each kind."""

    def __init__(self) -> None:
        self.last_ns: dict[type[Message], int] = {}

    def __call__(self, way: str, node: str, message: Message) -> None:
        """Watch what is sent and received."""
        if isinstance(message, Ready | Cut | Passed | Stored | Start | Listening | Connect | Connected | Go):
            self.last_ns[type(message)] = monotonic_ns()

    def since(self, begun_ns: int, again_ns: int) -> Mapping[str, float]:
        """Milliseconds of each step."""
        found, before_ns = {}, begun_ns
        for name, kind in STEPS:
            found[name], before_ns = (self.last_ns[kind] - before_ns) / 1e6, self.last_ns[kind]
        return {**found, "first batch": (again_ns - before_ns) / 1e6}


class Found:
    """Pauses in seconds, milliseconds of steps, and CPU seconds of controller and nodes."""

    def __init__(self) -> None:
        self.restarts: list[float] = []
        self.live: list[float] = []
        self.steps: list[Mapping[str, float]] = []
        self.cpu: list[tuple[float, float]] = []


async def revise(play: Play, revision: int | None, moves: Sequence[Move]) -> None:
    """Carry moves out: a revision with a number by a restart, without one live."""
    carried = await play.coordinator._checkpoint_loop.carry(revision, (tuple(moves),))
    if carried.outcome != "done":
        raise SystemExit(f"not carried out: {carried}")


async def measure(on: Ground, options: argparse.Namespace, fresh: bool) -> Found:
    """Restart, move live, restart, ..., in one run."""
    count = options.nodes
    names = [*(f"spout[{at}]" for at in range(SPOUTS)), *(f"keep[{at}]" for at in range(options.keepers))]
    now = {name: int(name[name.index("[") + 1 : -1]) % count for name in names}
    keepers, moving = names[SPOUTS:], max(1, round(len(names) / 10))
    path = on.folder / f"diary-{fresh}"
    params: dict[str, Any] = {
        "keys": options.keepers * options.state_kb * 1000 // VALUE_BYTES,
        "value_bytes": VALUE_BYTES,
        "parallelism": {"spout": SPOUTS, "keep": options.keepers},
        "diary": str(path),
    }
    settings = ControlSettings(checkpoint_s=3600.0, restart=RestartRules(0.0, fresh))
    places = {name: f"n{node}/0" for name, node in now.items()}
    rate = {"kind": "constant", "tuples_per_s": RATE}
    steps, found, used = Steps(), Found(), 0
    async with on.run(load_workload("keyed-state", params), places, rate, settings, steps) as play:
        await play.coordinator.wait_until(await play.coordinator.start())
        for turn in range(2 * options.restarts):
            await wait(play, SETTLE_S)
            chosen = [keepers[(turn * moving + at) % len(keepers)] for at in range(moving)]
            now |= {name: (now[name] + 1) % count for name in chosen}
            moves = [Move(name, Slot(f"n{now[name]}", 0)) for name in chosen]
            restarts = turn % 2 == 0
            before = processes(on)
            cpu, own, begun_ns = cpu_s(before), process_time(), monotonic_ns()
            await revise(play, turn if restarts else None, moves)
            own, cpu = process_time() - own, cpu_s(before) - cpu
            awaited = len(keepers) if restarts else moving
            await play.until(lambda: len(diary(path)) >= used + awaited, "the first batches")  # noqa: B023
            lines, used = diary(path)[used:], used + awaited
            last_ns, first_ns = max(line[1] for line in lines), min(line[2] for line in lines)
            if restarts:
                found.restarts.append((first_ns - last_ns) / 1e9)
                found.steps.append(steps.since(begun_ns, first_ns))
                found.cpu.append((own, cpu))
            else:
                found.live += [(again - last) / 1e9 for _, last, again in lines]
        verdict = await play.end()
        if not verdict.passed or play.coordinator.event_log.recoveries:
            raise SystemExit(f"the answer is wrong, or the run broke: {verdict.message}")
    return found


async def run(options: argparse.Namespace) -> int:
    """Measure both kinds, print."""
    results = {}
    print(load())
    for kind in LIMITS_S:
        async with nodes(options.nodes) as on:
            results[kind] = await measure(on, options, fresh=kind == "new")
    print(f"{load()}\n\n| pause | median, s | longest, s | limit | live move beside it: median, ms | longest, ms |")
    print("|---|---|---|---|---|---|")
    for kind, limit in LIMITS_S.items():
        found, live = results[kind].restarts, [1e3 * each for each in results[kind].live]
        row = f"{median(found):.2f} | {max(found):.2f} | {limit:g} | {median(live):.0f} | {max(live):.0f}"
        print(f"| {kind} processes | {row} |")
    print("\n| step, ms | " + " | ".join(f"{kind} processes" for kind in LIMITS_S) + " |\n|---|---|---|")
    for step in (*(name for name, _ in STEPS), "first batch"):
        print(f"| {step} | " + " | ".join(f"{median(e[step] for e in results[k].steps):.0f}" for k in LIMITS_S) + " |")
    own, rest = (1e3 * median(column) for column in zip(*results["kept"].cpu, strict=True))
    print(f"\nCPU time until the sources start, kept processes: controller {own:.0f} ms, nodes {rest:.0f} ms")
    return 0


def main() -> int:
    """Read the options, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--restarts", type=int, default=10, help="of each kind")
    parser.add_argument("--keepers", type=int, default=18)
    parser.add_argument("--state-kb", type=int, default=10, help="of each keeper")
    parser.add_argument("--nodes", type=int, default=3)
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())

"""Measure whether checkpoints that hold only what has changed would cost less CPU time than whole ones.

    python benchmarks/dataplane/incremental.py [--rounds 5] [--keys 100000 1000000]

One thread, without a topology. The first part is the price: what a row costs while the changed keys of a counter are
noted, as between all checkpoints of an incremental store, and as now. The second part is the gain: CPU time to encode
all of a state with values of 100 bytes, and only a share of its keys. The minima of all rounds count.

Example: .venv/bin/python benchmarks/dataplane/incremental.py --rounds 3 --keys 100000
"""

import argparse
import random
import time
from collections.abc import Callable, Collection
from typing import Any

import pyarrow as pa

from workloads.keyed_state import KeyedState
from workloads.operator_state import OperatorState
from workloads.operators import Bolt

WORDS, ROWS_OF_A_BATCH, ROWS_OF_COLUMNS = 200_000, 64, 1024
SHARES = (0.01, 0.1, 0.5)


class Count(Bolt):
    """Counts words."""

    counts = KeyedState(int)


class Values(Bolt):
    """Has a value of 100 bytes for every key."""

    values = KeyedState(bytes)


def least_ms(rounds: int, step: Callable[[], object]) -> float:
    """Return the CPU time of a step in its fastest round."""
    taken = []
    for _ in range(rounds):
        began = time.thread_time_ns()
        step()
        taken.append(time.thread_time_ns() - began)
    return min(taken) / 1e6


def count_all(bolt: Count, batches: Collection[Any], changed: set[Any]) -> None:
    """Count the words of all batches, as between two checkpoints."""
    changed.clear()
    for batch in batches:
        bolt.counts.add(batch)


def main() -> None:
    """Print both parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keys", type=int, nargs="+", default=[100_000, 1_000_000])
    options = parser.parse_args()
    draws = random.Random(1)  # noqa: S311 - it must be repeatable
    words = [f"w{draws.paretovariate(0.6):.0f}"[:12] for _ in range(WORDS)]
    rows = [words[at : at + ROWS_OF_A_BATCH] for at in range(0, WORDS, ROWS_OF_A_BATCH)]
    columns = [
        pa.array(words[at : at + ROWS_OF_COLUMNS]).dictionary_encode() for at in range(0, WORDS, ROWS_OF_COLUMNS)
    ]
    print("ns per word | rows | columns")
    for is_tracked in (False, True):
        bolt, changed = Count(), set[Any]()
        OperatorState(bolt).track(changed if is_tracked else None)
        times = [
            least_ms(options.rounds, lambda: count_all(bolt, batches, changed)) * 1e6 / WORDS  # noqa: B023 - at once
            for batches in (rows, columns)
        ]
        print(f"{'noted' if is_tracked else 'as now'} | {times[0]:.0f} | {times[1]:.0f}")
    print("\nms | MB | whole", *(f"{share:.0%} of the keys" for share in SHARES), sep=" | ")
    for keys in options.keys:
        large = Values()
        large.values.update((key, bytes(100)) for key in range(keys))
        state = OperatorState(large)
        whole = least_ms(options.rounds, state.snapshot)
        some = [draws.sample(range(keys), int(share * keys)) for share in SHARES]
        parts = [least_ms(options.rounds, lambda: state.part(each)) for each in some]  # noqa: B023 - called at once
        print(
            f"{keys:,} keys", f"{len(state.snapshot()) / 1e6:.0f}", *(f"{ms:.1f}" for ms in (whole, *parts)), sep=" | "
        )


if __name__ == "__main__":
    main()

"""Which runs a campaign has, and in which order: every workload under every scheduler and CPU settings, repeated.

Interleaving spreads whatever drifts on a machine (heat, other users, page cache) over all schedulers instead of letting
it hit one of them; the shuffle within each repetition keeps any one from always following the same other.
"""

import hashlib
from collections.abc import Sequence
from typing import Literal, NamedTuple

Order = Literal["interleaved", "sequential"]


class Run(NamedTuple):
    """One run: its number in the campaign (from 1), the workload's label, the scheduler, the repetition (from 1).

    `cpu` is the label of its CPU settings, empty where they have none.
    """

    number: int
    workload: str
    scheduler: str
    repetition: int
    name: str
    seed: int
    cpu: str = ""


def runs_of(
    workloads: Sequence[str],
    schedulers: Sequence[str],
    repetitions: int,
    order: Order,
    seed: int,
    cpus: Sequence[str] = ("",),
) -> list[Run]:
    """All runs in the order in which they are to be done; the same arguments give the same list everywhere.

    `interleaved` does one repetition after the other, each in a shuffled order of its own; `sequential` does all
    repetitions of one combination before the next.
    """
    combinations = [(workload, scheduler, cpu) for workload in workloads for scheduler in schedulers for cpu in cpus]
    rounds = range(1, repetitions + 1)
    if order == "sequential":
        wanted = [(*combination, k) for combination in combinations for k in rounds]
    else:
        # Sorting by a hash is a shuffle that no library version can change.
        wanted = [
            (*combination, k)
            for k in rounds
            for combination in sorted(combinations, key=lambda each: _digest(seed, "order", k, *filter(None, each)))
        ]
    width = max(3, len(str(len(wanted))))
    return [
        Run(
            number,
            workload,
            scheduler,
            k,
            "-".join(filter(None, (f"{number:0{width}d}", workload, scheduler, cpu, f"r{k}"))),
            run_seed(seed, workload, k),
            cpu,
        )
        for number, (workload, scheduler, cpu, k) in enumerate(wanted, 1)
    ]


def run_seed(seed: int, workload: str, repetition: int) -> int:
    """Seed of a run, 32 bits.

    It leaves scheduler and CPU settings out: within a repetition all of them meet the same random choices of a workload
    (common random numbers), which takes that noise out of their comparison.
    """
    return int.from_bytes(_digest(seed, "run", workload, repetition)[:4], "big")


def _digest(*parts: object) -> bytes:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).digest()

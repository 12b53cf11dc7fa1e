"""Runs of a campaign and their order: every workload under every scheduler and CPU settings, repeated.

Interleaving spreads drift of a machine (heat, other users, page cache) over all schedulers instead of concentrating it
on one; the shuffle within each repetition prevents that one scheduler always follows the same other one.
"""

import hashlib
from collections.abc import Sequence
from typing import Literal, NamedTuple

Order = Literal["interleaved", "sequential"]


class Run(NamedTuple):
    """One run: its number in the campaign (from 1), the workload's label, the scheduler, the repetition (from 1).

    `cpu` is the label of its CPU settings, or empty.
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
    """Return all runs in order; the same arguments give the same list on every machine.

    `interleaved` executes one repetition after the other, each in a shuffled order of its own; `sequential` executes
    all repetitions of one combination before the next.
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
    """Return the seed of a run, 32 bits.

    Scheduler and CPU settings have no influence: within a repetition all of them get the same random choices of a
    workload (common random numbers), which removes that noise from their comparison.
    """
    return int.from_bytes(_digest(seed, "run", workload, repetition)[:4], "big")


def _digest(*parts: object) -> bytes:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).digest()

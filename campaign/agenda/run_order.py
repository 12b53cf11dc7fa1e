"""Runs of a campaign and their order: every workload under every scheduler, CPU settings and factors, repeated.

Interleaving spreads drift of a machine (heat, other users, page cache) over all schedulers instead of concentrating it
on one; the shuffle within each repetition prevents that one scheduler always follows the same other one.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from analysis.records.factors import Factors, factors_text, inventory_of, value_text

Order = Literal["interleaved", "sequential"]


class PlannedRun(NamedTuple):
    """One run: its number in the campaign (from 1), the labels of workload and scheduler, the repetition (from 1).

    `cpu` is the label of its CPU settings, or empty; `factors` are the values of the agenda's factors.
    """

    number: int
    workload: str
    scheduler: str
    repetition: int
    name: str
    seed: int
    cpu: str = ""
    factors: Factors = MappingProxyType({})

    @property
    def labels(self) -> dict[str, str]:
        return labels_of(self.workload, self.scheduler, self.cpu, self.factors)

    @property
    def combination(self) -> str:
        """The values of the agenda's factors as text; empty without factors."""
        return factors_text(self.factors)

    @property
    def inventory(self) -> str:
        """The inventory of its cluster; empty if the inventory is no factor."""
        return inventory_of(self.factors)


def ordered_runs(
    workloads: Sequence[str],
    schedulers: Sequence[str],
    repetitions: int,
    order: Order,
    seed: int,
    cpus: Sequence[str] = ("",),
    factors: Sequence[Factors] = (MappingProxyType({}),),
    keeps: Callable[[Mapping[str, str]], bool] = lambda labels: True,
) -> list[PlannedRun]:
    """Return all runs in order; the same arguments give the same list on every machine.

    `factors` are the combinations of the agenda's factors; `keeps` returns whether the agenda has runs with these
    `labels_of`.

    `interleaved` executes one repetition after the other, each in a shuffled order of its own; `sequential` executes
    all repetitions of one combination before the next. Runs on one inventory are not separated by runs on another one.
    """
    combinations = [
        (workload, scheduler, cpu, each)
        for each in factors
        for workload in workloads
        for scheduler in schedulers
        for cpu in cpus
        if keeps(labels_of(workload, scheduler, cpu, each))
    ]
    rounds = range(1, repetitions + 1)
    if order == "sequential":
        wanted = [(*combination, k) for combination in combinations for k in rounds]
    else:
        # Sorting by a hash is a shuffle that no library version can change.
        wanted = [
            (*combination, k)
            for k in rounds
            for combination in sorted(combinations, key=lambda each: _position(seed, k, *each))
        ]
    # Bringing up another cluster takes longer than a run.
    inventories = list(dict.fromkeys(inventory_of(each) for each in factors))
    wanted.sort(key=lambda each: inventories.index(inventory_of(each[3])))
    width = max(3, len(str(len(wanted))))
    return [
        PlannedRun(
            number,
            workload,
            scheduler,
            k,
            "-".join(filter(None, (f"{number:0{width}d}", workload, scheduler, cpu, run_name_part(each), f"r{k}"))),
            run_seed(seed, workload, k),
            cpu,
            each,
        )
        for number, (workload, scheduler, cpu, each, k) in enumerate(wanted, 1)
    ]


def labels_of(workload: str, scheduler: str, cpu: str, factors: Factors) -> dict[str, str]:
    """Return what distinguishes the runs of a repetition, by the keys of `--only` and of rules."""
    own = {"workload": workload, "scheduler": scheduler, "cpu": cpu}
    return own | {key: value_text(value) for key, value in factors.items()}


LONGEST_VALUE, LONGEST_VALUES = 24, 80
"""Maximum lengths in the name of a run: of a factor's value, and of all of them."""


def run_name_part(factors: Factors) -> str:
    """Return the values of factors as part of a file name."""
    values = (re.sub(r"[^A-Za-z0-9.+]+", "_", value_text(value))[:LONGEST_VALUE] for value in factors.values())
    return "-".join(values)[:LONGEST_VALUES]


def _position(seed: int, repetition: int, workload: str, scheduler: str, cpu: str, factors: Factors) -> bytes:
    return _digest(seed, "order", repetition, *filter(None, (workload, scheduler, cpu, factors_text(factors))))


def run_seed(seed: int, workload: str, repetition: int) -> int:
    """Return the seed of a run, 32 bits.

    Scheduler, CPU settings and factors have no influence: within a repetition all of them get the same random choices
    of a workload (common random numbers), which removes that noise from their comparison.
    """
    return int.from_bytes(_digest(seed, "run", workload, repetition)[:4], "big")


def _digest(*parts: object) -> bytes:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).digest()


def continued(runs: Sequence[PlannedRun], names: Sequence[str]) -> list[PlannedRun]:
    """Return the runs of a campaign that was extended: `names` stay, further runs come behind them, in their order.

    Args:
        runs: all runs, as planned without regard to the names.
        names: of the runs so far, in order.
    """
    # Without its number a name says which run it is; runs whose labels make it equal are in the same order in both.
    known: dict[str, list[tuple[int, str]]] = {}
    for number, name in enumerate(names, 1):
        known.setdefault(name.partition("-")[2], []).append((number, name))
    width = max(3, len(str(len(runs))))
    kept: list[PlannedRun] = []
    added: list[PlannedRun] = []
    for run in runs:
        what = run.name.partition("-")[2]
        if known.get(what):
            number, name = known[what].pop(0)
            kept.append(run._replace(number=number, name=name))
        else:
            number = len(names) + len(added) + 1
            added.append(run._replace(number=number, name=f"{number:0{width}d}-{what}"))
    return [*sorted(kept), *added]

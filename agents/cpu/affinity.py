"""The CPUs that an agent and its workers may use: those that the agent had at its start, also after CPUs were off.

A CPU that goes off does not take its processes with it, but not all comes back when it does: who was bound to it alone
may use all others from then on, and a control group of version 1 (`cpuset`) forgets it, for all processes in it.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from agents.cpu.topology import FOLDER, parse_list

_PROC, _ONLINE = Path("/proc"), Path("/", FOLDER, "online")
_FIELD = "Cpus_allowed_list:"


class Bound(NamedTuple):
    """A process that lacked CPUs that work: which it could use before, should, and can now."""

    process: int
    before: frozenset[int]
    wanted: frozenset[int]
    now: frozenset[int]

    @property
    def ok(self) -> bool:
        """Whether it has them back."""
        return self.wanted <= self.now


class Affinity:
    """What this process may use now is what it and others should have later."""

    def __init__(self) -> None:
        self._wanted = _allowed(_PROC / str(os.getpid())) or frozenset()

    def give_back(self, processes: Iterable[int]) -> list[Bound]:
        """Let processes use what they should, of the CPUs that work; CPUs that they have besides stay.

        Args:
            processes: their ids; those that are gone are left out.

        Returns:
            Those that lacked some.
        """
        try:
            wanted = self._wanted & frozenset(parse_list(_ONLINE.read_text().strip()))
        except (OSError, ValueError):
            return []
        return [bound for process in processes for bound in _give_back(process, wanted)]


def _give_back(process: int, wanted: frozenset[int]) -> Iterator[Bound]:
    folder = _PROC / str(process)
    before = _allowed(folder)
    tasks: list[Path] = []
    with suppress(OSError):
        tasks = list((folder / "task").iterdir())
    lacked = False
    for task in tasks:
        allowed = _allowed(task)
        if allowed is not None and not wanted <= allowed:
            lacked = True
            with suppress(OSError):
                os.sched_setaffinity(int(task.name), allowed | wanted)
    now = _allowed(folder)
    if lacked and before is not None and now is not None:
        yield Bound(process, before, wanted, now)


def _allowed(folder: Path) -> frozenset[int] | None:
    """What a task may use, CPUs that are off included; None when it is gone."""
    try:
        lines = (folder / "status").read_text().splitlines()
        return frozenset(parse_list(next(line for line in lines if line.startswith(_FIELD)).split()[1]))
    except (OSError, StopIteration, ValueError):
        return None


def as_list(cpus: Iterable[int]) -> str:
    """CPUs as the kernel lists them, one by one: `0,2,3`."""
    return ",".join(map(str, sorted(cpus)))

"""`profile` of an agenda: runs before the measured ones, whose traffic and loads schedulers get."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from inventory.documents import Origin
from inventory.errors import nearest
from inventory.plugins import plugins
from inventory.values import SomeSeconds
from scheduler.registry import GROUP, Checked
from workloads.traffic import Traffic


class ProfileEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """Profiling runs: their scheduler, by its label in the agenda or its name, and seconds that are measured."""

    scheduler: str
    duration_s: SomeSeconds = 30.0


class ProfiledTraffic(NamedTuple):
    """Traffic and loads of a profiling run, and their file in the campaign's folder."""

    file: str
    traffic: Traffic


Profiles = Mapping[tuple[str, str], ProfiledTraffic]
"""Traffic that is measured so far, by the combination of factors, as text, and the workload's label."""


def check_profile(origin: Origin, entry: ProfileEntry | None, labels: Sequence[str]) -> None:
    """Check that the scheduler of profiling runs is one of the agenda's `labels`, or installed.

    Raises:
        InputError: it is neither.
    """
    choices = [*labels, *plugins(GROUP)]
    if entry is not None and entry.scheduler not in choices:
        raise (origin / "scheduler").error(f"unknown scheduler {entry.scheduler!r}{nearest(entry.scheduler, choices)}")


def uses_profile(scheduler: Checked) -> bool:
    """Return whether a scheduler uses measured traffic or loads."""
    return scheduler.needs.traffic != "ignored" or scheduler.needs.load

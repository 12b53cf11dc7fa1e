"""Installed schedulers, workloads, agendas and sensors, as plain data for `millrace list`.

A plug-in that cannot be loaded is listed with its `error`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agents.sensors import GROUP as SENSORS
from agents.sensors import Sensor
from campaign.agenda.agenda import builtin_agendas
from inventory.errors import MillraceError
from inventory.plugins import load_plugin, parameter_rows, plugins
from scheduler.registry import GROUP as SCHEDULERS
from scheduler.registry import scheduler_class
from workloads.workload import GROUP as WORKLOADS
from workloads.workload import Workload

Entry = dict[str, Any]


def _each(group: str, describe: Callable[[str], Entry]) -> list[Entry]:
    entries: list[Entry] = []
    for name in plugins(group):
        try:
            entries.append({"name": name, **describe(name), "error": None})
        except (MillraceError, AttributeError, TypeError) as fault:  # the last two: part of the interface is missing
            entries.append({"name": name, "error": str(fault)})
    return entries


def schedulers() -> list[Entry]:
    """Return name, paper, kind (static or online), needs, parameters and ignored input of every scheduler."""
    return _each(SCHEDULERS, _scheduler)


def _scheduler(name: str) -> Entry:
    kind = scheduler_class(name)
    needs = kind.needs
    return {
        "paper": kind.paper,
        "kind": "online" if needs.online else "static",
        "resources": needs.resources,
        "hardware": needs.hardware,
        "traffic": needs.traffic,
        "load": needs.load,
        "cycles": needs.cycles,
        "ignores": needs.ignores,
        "params": parameter_rows(kind.Params),
    }


def workloads() -> list[Entry]:
    """Return name, summary, paper and parameters of every workload."""
    return _each(WORKLOADS, _workload)


def _workload(name: str) -> Entry:
    kind: type[Workload] = load_plugin(WORKLOADS, name)
    return {"summary": kind.summary, "paper": kind.paper, "params": parameter_rows(kind.Params)}


def sensors() -> list[Entry]:
    """Return name and summary of every sensor."""
    return _each(SENSORS, _sensor)


def _sensor(name: str) -> Entry:
    kind: type[Sensor] = load_plugin(SENSORS, name)
    return {"summary": kind.summary}


def agendas() -> list[Entry]:
    """Return name, file and summary (the first comment line) of every built-in agenda."""
    return [
        {"name": name, "summary": _first_comment(path), "path": str(path), "error": None}
        for name, path in builtin_agendas().items()
    ]


def _first_comment(path: Path) -> str:
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") and line.strip("# "):
            return line.strip("# ")
    return ""


LISTINGS: dict[str, Callable[[], Sequence[Entry]]] = {
    "schedulers": schedulers,
    "workloads": workloads,
    "agendas": agendas,
    "sensors": sensors,
}
"""Kind of plug-in -> function that lists it."""

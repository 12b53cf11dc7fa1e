"""The engines on which a campaign can run, by their names in agendas."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from engines.flink.configuration import OPTIONS as FLINK_OPTIONS
from engines.flink.configuration import check_flink_topology as check_for_flink
from engines.flink.configuration import flink_wait
from engines.flink.processes import FlinkProcesses
from engines.installation import Engine, Progress, install, installed
from engines.placed_processes import PlacedProcesses
from engines.programs import engine_jar
from engines.storm.configuration import OPTIONS as STORM_OPTIONS
from engines.storm.configuration import check_storm_topology as check_for_storm
from engines.storm.configuration import storm_wait
from engines.storm.processes import StormProcesses
from inventory.errors import UnfitError
from workloads.topology import Topology


class EngineKind(NamedTuple):
    """An engine.

    Attributes:
        title: its name for people.
        jars: its name in `jars.toml`.
        check: raises an `InputError` for topologies that it cannot run.
        processes: makes the processes of a run from the job, the installed engine, and the jar of our programs.
        options: its own settings that an agenda may change -> type.
        linger_options: returns the settings with which rows wait so many ms for others; raises a `ValueError` for times
            that it does not have.
        has_acks: whether it can acknowledge rows.
        node_mb, worker_mb: least memory that its processes were seen to need on a node, beside workers and per worker,
            in MiB.
    """

    title: str
    jars: str
    check: Callable[[Topology], None]
    processes: type[PlacedProcesses]
    options: Mapping[str, Any]
    linger_options: Callable[[float], Mapping[str, int | str]]
    has_acks: bool
    node_mb: int
    worker_mb: int


AGENTS = "agents"
"""Millrace's own agents, in agendas."""

ENGINES: Mapping[str, EngineKind] = {
    # Per worker of Storm, a log writer, too.
    "storm": EngineKind(
        "Apache Storm", "storm", check_for_storm, StormProcesses, STORM_OPTIONS, storm_wait, True, 150, 200
    ),
    "flink": EngineKind(
        "Apache Flink", "flink", check_for_flink, FlinkProcesses, FLINK_OPTIONS, flink_wait, False, 0, 250
    ),
}


def install_engine(name: str, report: Progress) -> Path:
    """Install an engine and compile our programs for it; return its folder.

    Raises:
        UnfitError: see `engines.installation.install` and `engines.programs.engine_jar`.
    """
    engine = install(ENGINES[name].jars, report)
    engine_jar(engine, report)
    return engine.folder


def release_of(engine: Engine) -> str:
    """Return an engine's release, which is part of its jars' names."""
    jar = next(iter(sorted(engine.folder.glob(f"{engine.name.partition('-')[0]}-*.jar"))))
    return jar.stem.rpartition("-")[2]


def ready(name: str) -> tuple[Engine, Path]:
    """Return an installed engine, and the jar of our programs for it.

    Raises:
        UnfitError: it is not installed, or our programs cannot be compiled.
    """
    engine = installed(ENGINES[name].jars)
    if engine is None:
        raise UnfitError(f"engine: {name}: {ENGINES[name].title} is not installed; millrace engine {name} installs it")
    return engine, engine_jar(engine, lambda line: None)


def any_programs() -> Path:
    """Return the jar of our programs for one of the installed engines.

    Raises:
        UnfitError: none is installed.
    """
    for name, kind in ENGINES.items():
        if installed(kind.jars) is not None:
            return ready(name)[1]
    raise UnfitError(f"no engine is installed; millrace engine {next(iter(ENGINES))} installs one")

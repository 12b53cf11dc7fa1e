"""The engine of an agenda (`engine: storm`): what can run on it, and what is refused because it has no such thing."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from campaign.agenda.agenda import ADAPTIVE, Agenda
from campaign.agenda.application import Application
from engines.load import replay_settings, replayed
from engines.selection import AGENTS, ENGINES
from inventory.documents import Origin
from inventory.errors import InputError, nearest
from scheduler.problem import ONE_THREAD
from workloads.rates import Constant, Max, Replay
from workloads.topology import Topology

TEXTS = ("wordcount", "exclamation")
"""Workloads that other engines run as they are; their answers are compared with the reference."""


class EngineProgram(NamedTuple):
    """Program of executors on an engine (`millrace.Job`): its name, the topology with its rows, and what it needs."""

    name: str
    topology: Topology
    settings: Mapping[str, str | int | float]


def worker_points(engine: str) -> float | None:
    """Return the CPU points that a worker of an engine can compute; None: its executors have threads of their own."""
    return None if engine in ENGINES else ONE_THREAD


def check_engine(agenda: Agenda, origin: Origin) -> None:
    """Check that an agenda asks for nothing that its engine does not have.

    Args:
        agenda: the agenda.
        origin: its origin.

    Raises:
        InputError: it does; the message names the first such key.
    """
    options = origin / "engine_options"
    if agenda.engine == AGENTS:
        if agenda.engine_options:
            raise options.error("engine: agents has no settings of its own; expected another engine")
        return
    known = ENGINES[agenda.engine].options
    for key, value in agenda.engine_options.items():
        if key not in known:
            raise (options / key).error(
                f"is no setting of engine: {agenda.engine} that an agenda may change{nearest(key, known)}"
            )
        try:
            msgspec.convert(value, known[key])
        except msgspec.ValidationError as fault:
            raise (options / key).error(f"{fault}".replace("Expected", "expected", 1)) from None
    if agenda.linger_ms != ADAPTIVE:
        here = origin / "linger_ms"
        try:
            lingering = ENGINES[agenda.engine].linger_options(agenda.linger_ms)
        except ValueError as fault:
            raise here.error(f"got {agenda.linger_ms}, with engine: {agenda.engine} {fault}") from None
        if both := [key for key in lingering if key in agenda.engine_options]:
            raise (options / both[0]).error("is set by linger_ms, too; leave one of them out")
    for steps, what in _lacking(agenda):
        here = origin
        for step in steps:
            here = here / step
        raise here.error(f"{what} is not possible with engine: {agenda.engine}; leave it out, or run on engine: agents")


def _lacking(agenda: Agenda) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for at, entry in enumerate(agenda.schedulers):
        if isinstance(entry, str):
            continue
        if entry.gates is not None:
            yield ("schedulers", at, "gates"), "a communication schedule"
        if entry.online is not None:
            yield ("schedulers", at, "online"), "an online scheduler"
    for key, what in (
        ("timeline", "a scripted event"),
        ("revision", "a revision of a running topology"),
        ("profile", "a profiling run"),
        ("search", "a search for the sustainable rate"),
        ("cpu", "setting CPUs"),
        ("buffer_mb", "a size of input queues"),
    ):
        if getattr(agenda, key):
            yield (key,), what
    if agenda.acks and not ENGINES[agenda.engine].has_acks:
        yield ("acks",), "acknowledging rows"


def options_of(agenda: Agenda) -> dict[str, bool | int | float | str]:
    """Return the settings of the agenda's engine, those by which rows wait for others included."""
    if agenda.linger_ms == ADAPTIVE:
        return dict(agenda.engine_options)
    return {**agenda.engine_options, **ENGINES[agenda.engine].linger_options(agenda.linger_ms)}


def check_program(engine: str, application: Application) -> None:
    """Check that an engine can run a workload.

    Args:
        engine: the engine's name in the agenda.
        application: the workload.

    Raises:
        InputError: there is no program for it, its topology cannot run there, or its rate has no due times.
    """
    if engine == AGENTS:
        return
    program = program_of(engine, application)
    rate = application.rate
    if isinstance(rate, Max | Replay) or (isinstance(rate, Constant) and rate.load is not None):
        raise (application.origin / "rate").error(
            f"engine: {engine} needs a rate with due times of its own; expected tuples_per_s, steps, poisson, bursts "
            "or sine"
        )
    try:
        ENGINES[engine].check(program.topology)
    except InputError as fault:
        raise application.origin.error(str(fault)) from None


def program_of(engine: str, application: Application) -> EngineProgram:
    """Return the program that runs a workload on an engine.

    Raises:
        InputError: there is none, or a load document lacks figures.
    """
    if application.name == "replay":
        load = application.workload.params.document
        try:
            return EngineProgram("replay", replayed(load), replay_settings(load))
        except InputError as fault:
            raise (application.origin / "params" / "load").error(str(fault)) from None
    if application.name not in TEXTS:
        raise application.origin.error(
            f"the workload {application.name!r} does not run on engine: {engine}; expected {', '.join(TEXTS)}, or "
            "replay of a load document, which millrace load makes from a run"
        )
    if application.params.get("combine"):
        raise (application.origin / "params" / "combine").error(
            f"rows cannot be combined on engine: {engine}, whose executors process one row at a time"
        )
    return EngineProgram(application.name, application.topology, {})

"""Inputs of one run, and the conditions that all runs of a campaign share."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from campaign.agenda.agenda import IdleEntry
from campaign.agenda.cpu_settings import ByNode
from campaign.agenda.plan import Application, Placed
from campaign.agenda.run_order import Run
from controller.coordinator.migrations import MovePlan
from controller.nodes.agents import Member
from workloads.workload import PreparedInput


@dataclass(frozen=True)
class Conditions:
    """Conditions that all runs of a campaign share.

    `idle` is None without the sensor `power`. `tier` and `processes` are those of
    `controller.nodes.backend.Backend`. With `accepts_shortfall`, nodes and links may have less than the requested
    capacity.
    """

    campaign: str
    warmup_s: float
    duration_s: float
    sensors: tuple[str, ...]
    idle: IdleEntry | None
    checkpoint_s: float
    profile: bool
    tier: int
    accepts_shortfall: bool
    processes: Sequence[int] | None


@dataclass(frozen=True)
class RunInputs:
    """One run and its inputs.

    Attributes:
        run: the run.
        application: its workload.
        placed: the placement.
        inputs: the prepared inputs.
        members: all nodes of the cluster, by id.
        attempt: number of the attempt, from 1.
        moves: moves of the agenda's timeline.
        cpus: node -> CPU settings.
        place_without: computes a placement without the given nodes.
    """

    run: Run
    application: Application
    placed: Placed
    inputs: Sequence[PreparedInput]
    members: Mapping[str, Member]
    attempt: int
    moves: Sequence[MovePlan]
    cpus: ByNode
    place_without: Callable[[Set[str]], Placed]

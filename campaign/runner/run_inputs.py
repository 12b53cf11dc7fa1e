"""What one run is asked to do, and under which conditions."""

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
    """What is the same for all runs of a campaign.

    `idle`: how nodes are metered without workers, None without the sensor `power`. `tier` is that of
    `controller.nodes.backend.Backend`; `accepts_shortfall`: runs take place although nodes or links got too
    little of what was asked for; `processes` are those of `Backend.processes`.
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
    """One run, and all that it needs.

    Attributes:
        run: which one.
        application, placed: what runs where.
        inputs: the prepared inputs.
        members: all nodes of the cluster, by id.
        attempt: which attempt it is, from 1.
        moves: what the agenda's timeline asks for.
        cpus: node -> CPU settings.
        place_without: places the application on other nodes than those given.
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

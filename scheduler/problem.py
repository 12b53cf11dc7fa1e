"""What a scheduler is given (`Problem`) and what it answers (`Plan`).

A scheduler is a class; `Scheduler` shows its shape. Third-party packages register theirs under the
entry-point group `millrace.schedulers`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

from inventory.cluster import Cluster, ExistingWorker
from inventory.power_index import NodePower
from workloads.topology import Executor, Topology
from workloads.traffic import Traffic

Status = Literal["placed", "partial", "failed"]


class Slot(NamedTuple):
    """A worker process's place: the node's id and the slot's index on it."""

    node: str
    index: int  # type: ignore[assignment]  # shadows tuple.index, which nobody needs here


@dataclass(frozen=True)
class Problem:
    """One scheduling round.

    Attributes:
        cluster: nodes, network and (in `cluster.existing`) what already runs.
        topologies: to be scheduled in this round, in submission order; ids are unique.
        traffic: what was observed, or None when nothing was.
    """

    cluster: Cluster
    topologies: tuple[Topology, ...]
    traffic: Traffic | None = None

    @property
    def existing(self) -> tuple[ExistingWorker, ...]:
        """Workers that already run."""
        return self.cluster.existing


@dataclass(frozen=True)
class Placement:
    """Executors of one topology -> slots.

    Attributes:
        assignments: executor -> slot; executors that already ran included.
        status: `placed` (all executors), `partial` (some) or `failed` (none, or not as asked).
        message: why it is not `placed`, or the scheduler's own status words.
    """

    assignments: Mapping[Executor, Slot]
    status: Status = "placed"
    message: str = ""


def concluded(topology: Topology, assignments: Mapping[Executor, Slot], message: str = "") -> Placement:
    """The placement with the status that follows from how many executors have a slot."""
    if len(assignments) == len(topology.executors):
        return Placement(assignments, "placed", message)
    return Placement(assignments, "partial" if assignments else "failed", message)


@dataclass(frozen=True)
class CommunicationSchedule:
    """Which node sends to which in every step.

    Attributes:
        nodes: node ids; steps refer to them by index.
        steps: per step, per sender, the receiver's index or None when the sender is idle.
        stages: stages of the pipeline.
    """

    nodes: tuple[str, ...]
    steps: tuple[tuple[int | None, ...], ...]
    stages: int


@dataclass(frozen=True)
class Move:
    """An executor that changes its slot."""

    topology: str
    executor: Executor
    source: Slot
    target: Slot


@dataclass(frozen=True)
class Plan:
    """A scheduler's answer.

    Attributes:
        placements: topology id -> placement, one for every topology of the problem.
        freed: existing workers that the scheduler released; a worker that moves is released from its old slot.
        schedule: communication schedule, where the algorithm makes one.
        frequencies: node id -> clock in Hz, where the algorithm sets one.
        migrations: executors that move away from where they ran.
        power: available nodes by computing power, where the algorithm ranks them by it with parameters of its own.
        details: the algorithm's own account, JSON types only.
    """

    placements: Mapping[str, Placement]
    freed: Sequence[ExistingWorker] = ()
    schedule: CommunicationSchedule | None = None
    frequencies: Mapping[str, int] = field(default_factory=dict)
    migrations: Sequence[Move] = ()
    power: Sequence[NodePower] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Needs:
    """What a scheduler must be told, and what it ignores; shown by `millrace list schedulers`.

    Attributes:
        resources: uses CPU and memory demands.
        hardware: uses clock, FLOPs per cycle and RAM of the nodes.
        traffic: uses measured rates (`required`, `used`, or `ignored`).
        load: uses measured loads of executors, where nodes have no `capacity` that counts executors.
        online: meant to be asked again while topologies run.
        cycles: its definition allows topologies with cycles; the others are never given one.
        shrinks: its definition says what becomes of running executors beyond a component's parallelism; the others
            are never given any.
        ignores: in words, what the algorithm does not look at.
    """

    resources: bool = False
    hardware: bool = False
    traffic: Literal["required", "used", "ignored"] = "ignored"
    load: bool = False
    online: bool = False
    cycles: bool = False
    shrinks: bool = False
    ignores: str = ""


@dataclass(frozen=True)
class NoParams:
    """For schedulers without parameters."""


@runtime_checkable
class Scheduler(Protocol):
    """The shape of a scheduler class.

    `Params` is a frozen dataclass with a default for every field; its annotations (also `Annotated` with
    `msgspec.Meta`) are what `--param` and agendas are checked against.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    needs: ClassVar[Needs]
    Params: ClassVar[type]

    def __init__(self, params: Any) -> None:
        """Keep `params`, an instance of `Params`."""
        ...

    def place(self, problem: Problem) -> Plan:
        """Place all topologies of `problem`; a pure function of it and the parameters."""
        ...

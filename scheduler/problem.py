"""Input (`Problem`) and output (`Plan`) of a scheduler.

A scheduler is a class with the interface of `Scheduler`. Third-party packages register theirs in the entry-point group
`millrace.schedulers`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from inventory.cluster import Cluster, ExistingWorker
from inventory.power_index import NodePower
from workloads.topology import Executor, Topology
from workloads.traffic import Traffic

Status = Literal["placed", "partial", "failed"]


class Slot(NamedTuple):
    """Slot of a node, which hosts at most one worker process: node id and index on the node."""

    node: str
    index: int  # type: ignore[assignment]  # shadows tuple.index, which is not needed here


@dataclass(frozen=True)
class Problem:
    """One scheduling round.

    Attributes:
        cluster: nodes, network and (in `cluster.existing`) running workers.
        topologies: topologies of this round, in submission order; ids are unique.
        traffic: observed traffic, or None.
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
    """Slots of the executors of one topology.

    Attributes:
        assignments: executor -> slot, running executors included.
        status: `placed` (all executors), `partial` (some) or `failed` (none, or not as asked).
        message: why it is not `placed`, or the scheduler's own status text.
    """

    assignments: Mapping[Executor, Slot]
    status: Status = "placed"
    message: str = ""


def concluded(topology: Topology, assignments: Mapping[Executor, Slot], message: str = "") -> Placement:
    """Return the placement, with the status that follows from the number of executors with a slot."""
    if len(assignments) == len(topology.executors):
        return Placement(assignments, "placed", message)
    return Placement(assignments, "partial" if assignments else "failed", message)


class CommunicationSchedule(Struct, frozen=True, forbid_unknown_fields=True):
    """Receiver of every node in every step; also the form in files.

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
    """Output of a scheduler.

    Attributes:
        placements: topology id -> placement, one for every topology of the problem.
        freed: existing workers that the scheduler released; a worker that moves is released from its old slot.
        schedule: communication schedule, if the algorithm produces one.
        frequencies: node id -> CPU clock in Hz, if the algorithm sets it.
        migrations: running executors that change their slot.
        power: available nodes by computing power, if the algorithm ranks them with its own parameters.
        details: the algorithm's own details, JSON types only.
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
    """Inputs that a scheduler uses and ignores, as shown by `millrace list schedulers`.

    Attributes:
        resources: uses CPU and memory demands.
        hardware: uses clock, FLOPs per cycle and RAM of the nodes.
        traffic: uses measured rates (`required`, `used`, or `ignored`).
        load: uses measured loads of executors, where nodes have no `capacity` that counts executors.
        online: meant to be run again while topologies run.
        cycles: accepts topologies with cycles; other schedulers never get one.
        shrinks: defines what happens to running executors beyond a component's parallelism; other schedulers never get
            any.
        ignores: text that lists what the algorithm ignores.
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
    """Parameters of a scheduler that has none."""


@runtime_checkable
class Scheduler(Protocol):
    """Interface of a scheduler class.

    `Params` is a frozen dataclass with a default for every field. Values of `--param` and agendas are checked against
    its annotations (also `Annotated` with `msgspec.Meta`).
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    needs: ClassVar[Needs]
    Params: ClassVar[type]

    def __init__(self, params: Any) -> None:
        """Keep `params`, an instance of `Params`."""
        ...

    def place(self, problem: Problem) -> Plan:
        """Return a plan for all topologies of `problem`; a pure function of `problem` and the parameters."""
        ...

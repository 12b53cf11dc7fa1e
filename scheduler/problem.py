"""Input (`Problem`) and output (`Plan`) of a scheduler, and the making of a problem from files.

A scheduler is a class with the interface of `Scheduler`. Third-party packages register theirs in the entry-point group
`millrace.schedulers`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from msgspec import Struct

from inventory.cluster import Cluster, ExistingWorker
from inventory.documents import Located, Origin
from inventory.errors import nearest
from inventory.power_index import NodePower
from inventory.values import Slot as Slot
from workloads.topology import ACKER, Executor, Topology
from workloads.traffic import Traffic, check_executors

Status = Literal["placed", "partial", "failed"]

ONE_THREAD = 100.0
"""CPU points that one thread can use: a worker of Millrace's agents runs all its executors on one."""


@dataclass(frozen=True)
class Problem:
    """One scheduling round.

    Attributes:
        cluster: nodes, network and (in `cluster.existing`) running workers.
        topologies: topologies of this round, in submission order; ids are unique.
        traffic: observed traffic, or None.
        worker_points: CPU points that one worker can compute; None: no limit, as on Storm and Flink, whose workers have
            a thread per executor.
    """

    cluster: Cluster
    topologies: tuple[Topology, ...]
    traffic: Traffic | None = None
    worker_points: float | None = ONE_THREAD

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

    @property
    def unserved(self) -> tuple[str, str] | None:
        """A pair of nodes without a step in which the first sends to the second; None: there is none."""
        served = {(sender, receiver) for step in self.steps for sender, receiver in enumerate(step)}
        for sender, source in enumerate(self.nodes):
            for receiver, target in enumerate(self.nodes):
                if (sender, receiver) not in served:
                    return source, target
        return None


@dataclass(frozen=True)
class Move:
    """An executor that changes its slot."""

    topology: str
    executor: Executor
    source: Slot
    target: Slot


Objective = Literal["cut", "cost", "busiest-link", "busiest-node"]

Hops = Literal["racks", "links"]
"""Costs of hops, and rates of links: by rack, or as measured."""


@dataclass(frozen=True)
class Aim:
    """Quantity that a placement is to minimise (`scheduler.toolkit.objective`).

    Attributes:
        objective: the objective; `cut` is W, the rate between nodes.
        hops: what hops cost.
    """

    objective: Objective = "cut"
    hops: Hops = "racks"


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
        aim: the objective that the algorithm minimises, if it has one of those known here.
        lower_bound: lower bound on its value, if known.
    """

    placements: Mapping[str, Placement]
    freed: Sequence[ExistingWorker] = ()
    schedule: CommunicationSchedule | None = None
    frequencies: Mapping[str, int] = field(default_factory=dict)
    migrations: Sequence[Move] = ()
    power: Sequence[NodePower] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    aim: Aim | None = None
    lower_bound: float | None = None


Overlap = Literal["none", "transfer"]
"""End of a time slot of a run with a communication schedule: its tuples are processed; or they have arrived."""


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
        memory: memory of nodes is a hard limit, also where components declare none and count with Storm's default.
        scales: its `revise` leads from the numbers of executors that run to those that are wanted.
        ignores: text that lists what the algorithm ignores.
    """

    resources: bool = False
    hardware: bool = False
    traffic: Literal["required", "used", "ignored"] = "ignored"
    load: bool = False
    online: bool = False
    cycles: bool = False
    shrinks: bool = False
    memory: bool = False
    scales: bool = False
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


def load_problem(
    needs: Needs,
    cluster: Located[Cluster],
    topologies: Sequence[Located[Topology]],
    traffic: Located[Traffic] | None = None,
) -> Problem:
    """Return the scheduling round of these files, for a scheduler with these needs.

    Raises:
        InputError: the files are inconsistent: two topologies with one name, one that no engine can run, a cycle that
            the scheduler's definition does not allow, a running worker with unknown executors, traffic of unknown
            executors or nodes.
    """
    graphs = tuple(topology.value for topology in topologies)
    _check_names(topologies)
    for topology in topologies:
        _check_flow(topology)
        if not needs.cycles:
            _check_cycle(topology)
    _check_existing(needs, cluster, graphs)
    if traffic is not None:
        _check_traffic(traffic, cluster.value, graphs)
    return Problem(cluster.value, graphs, None if traffic is None else traffic.value)


def _check_names(topologies: Sequence[Located[Topology]]) -> None:
    first: dict[str, Origin] = {}
    for topology in topologies:
        name, origin = topology.value.id, topology.origin / "id"
        if name in first:
            raise origin.error(f"two topologies are called {name!r}; the other one is at {first[name].where}")
        first[name] = origin


def _check_flow(located: Located[Topology]) -> None:
    """Refuse what no engine runs: a topology without a spout, a bolt without input, an input that is there twice."""
    topology, origin = located.value, located.origin / "components"
    # Topologies with a cycle do not run, but some schedulers are defined for them.
    if not topology.cycle and not any(component.kind == "spout" for component in topology.components):
        raise origin.error(f"topology {topology.id!r} has no spout")
    for at, component in enumerate(topology.components):
        if component.kind == "bolt" and not component.inputs and component.id != ACKER:
            raise (origin / at).error(f"bolt {component.id!r} has no input, so it would never do anything")
        streams = [(entry.source, entry.stream) for entry in component.inputs]
        for number, stream in enumerate(streams):
            if streams.index(stream) != number:
                words = f"{component.id!r} subscribes twice to the stream {stream[1]!r} of {stream[0]!r}"
                raise (origin / at / "inputs" / number).error(words)


def _check_cycle(located: Located[Topology]) -> None:
    topology = located.value
    if not topology.cycle:
        return
    places = {component.id: at for at, component in enumerate(topology.components)}
    origin = located.origin / "components" / places[topology.cycle[0]] / "inputs"
    raise origin.error(
        f"topology {topology.id!r} has a cycle, which this scheduler does not define: {' -> '.join(topology.cycle)}"
    )


def _check_existing(needs: Needs, cluster: Located[Cluster], topologies: Sequence[Topology]) -> None:
    by_id = {topology.id: topology for topology in topologies}
    seen: set[tuple[str, str]] = set()
    for at, worker in enumerate(cluster.value.existing):
        topology = by_id.get(worker.topology)
        for number, name in enumerate(worker.executors):
            here = cluster.origin / "existing" / at / "executors" / number
            if (worker.topology, name) in seen:
                raise here.error(f"the executor {name!r} of {worker.topology!r} runs twice")
            seen.add((worker.topology, name))
            try:
                executor = Executor.named(name)
            except ValueError as fault:
                raise here.error(str(fault)) from None
            if topology is None or (needs.shrinks and executor.component in topology.component):
                continue
            if name not in topology.executor_named:
                hint = nearest(name, topology.executor_named)
                raise here.error(f"topology {topology.id!r} has no executor {name!r}{hint}")


def _check_traffic(traffic: Located[Traffic], cluster: Cluster, topologies: Sequence[Topology]) -> None:
    ids = {topology.id for topology in topologies}
    others = {name for worker in cluster.existing if worker.topology not in ids for name in worker.executors}
    check_executors(traffic, topologies, others)
    for node in traffic.value.node_load:
        if node not in cluster.by_id:
            raise (traffic.origin / "node_load" / node).error(f"unknown node {node!r}{nearest(node, cluster.by_id)}")

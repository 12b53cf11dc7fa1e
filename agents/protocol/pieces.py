"""Parts of messages: places, executors, and the specification of a run."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from inventory.foreign import printable_all
from inventory.values import Slot as Slot
from workloads.key_groups import OwnerRuns

VERSION = 13

AGENT = -1
"""The slot in reports of an agent about itself."""

REPORT_FILE = re.compile(r"(?P<node>.+)-(?P<slot>\d{1,9})-(?P<pid>\d{1,9})\.tsv")
"""Names of the files in which the processes of programs report: node, slot, and the process's id there."""

MAX_LINE = 16 * 1024 * 1024
"""Most bytes of an accepted line."""

MOST_PAIRS_PER_S = 20_000
"""Most executor pairs that all workers of a run report per second."""

HEARTBEAT_S = 1.0
SILENCE_S = 15.0
"""Time without a heartbeat after which an agent acts as on end of file."""


Count = Annotated[int, Meta(ge=0, le=2**53)]
"""A number of things, or a duration in nanoseconds; sums over all workers of a run stay within 64 bits."""

Whole = Annotated[int, Meta(ge=-(2**61), le=2**61)]
"""A clock reading, or a number that counts from one; sums and differences of a few stay within 64 bits."""

SlotIndex = Annotated[int, Meta(ge=AGENT, le=2**31 - 1)]
"""A slot of a node, or `AGENT`."""

Port = Annotated[int, Meta(ge=0, le=65535)]

Fact = str | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float | list[str] | None
"""Value of one fact about a node."""


class Message(Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True, omit_defaults=True):
    """Base class of all messages; one line each."""


def make_printable(message: Struct, *names: str) -> None:
    """Make free-text attributes of a message printable; called when the message is created.

    It is created when it is sent, so that no line gets too long, and again when it is read, because senders are not
    trusted.
    """
    for name in names:
        value = getattr(message, name)
        force_setattr(
            message, name, tuple(map(printable_all, value)) if isinstance(value, tuple) else printable_all(value)
        )


class ExecutorSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """One executor and where it runs; its number is its position in the topology's executor list, or in `numbers`."""

    component: str
    index: int
    place: Slot


class Program(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A program that an agent starts in a session of its own.

    Attributes:
        name: what it is called in messages.
        command: program and arguments.
        log: path on the node of the file of its output.
        environment: what it has in its environment beside that of the agent.
    """

    name: str
    command: tuple[str, ...]
    log: str
    environment: Mapping[str, str] = {}


class InputFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A prepared input: name for operators, file name in the node's input folder, checksum."""

    name: str
    file: str
    sha256: str


class IdleBaseline(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Power of a node without workers.

    Attributes:
        watts: sum of all terms of its total; None if unknown.
        stddev_watts: standard deviation of the means of the intervals.
        seconds: duration of the measurement.
        load: busy fraction of all cores during the measurement.
        domains: watts of each term.
        attempts: number of measurements.
        flags: `unsteady`, `loaded`.
        reason: why the power is unknown; empty if it is known.
    """

    watts: float | None = None
    stddev_watts: float | None = None
    seconds: float | None = None
    load: float | None = None
    domains: Mapping[str, float] = {}
    attempts: Count = 0
    flags: tuple[str, ...] = ()
    reason: str = ""

    def __post_init__(self) -> None:
        make_printable(self, "domains", "flags", "reason")


class CpuSetting(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kernel file that was set, in the file's own unit (clocks are in kHz).

    Attributes:
        setting: description, such as `governor of policy0`.
        before: previous value.
        asked: requested value.
        got: value read back; None if it could not be read.
        ok: whether that is the requested value, up to the driver's steps.
        reason: why not; may be empty.
    """

    setting: str
    before: str
    asked: str
    got: str | None
    ok: bool
    reason: str = ""

    def __post_init__(self) -> None:
        make_printable(self, "setting", "before", "asked", "got", "reason")


def sample_s(pairs: int) -> int:
    """Return the least time between two samples of the traffic of this many executor pairs, in seconds."""
    return max(1, -(-pairs // MOST_PAIRS_PER_S))


def workers_of(executors: Iterable[ExecutorSpec]) -> tuple[Slot, ...]:
    """Return the workers of these executors, in the order of their numbers at the start."""
    return tuple(sorted({entry.place for entry in executors}))


class MoveToPlace(Struct, frozen=True, forbid_unknown_fields=True):
    """A move of one executor, by name, to another place."""

    executor: str
    to: Slot


class Gates(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A communication schedule: to which node each node may send in which time slot, and how much.

    Attributes:
        nodes: ids; a node's number is its position here.
        steps: per step, per sending node, the number of the node that it may send to; None: to none. A round is
            one time slot per step.
        stages: of the pipeline: components of level l are one step behind those of level l - 1; 1: all are at the same
            step.
        part_tuples: most tuples that one executor may send to another per time slot.
        overlap: `none`: a time slot ends when all its tuples have been processed; `transfer`: when they have arrived,
            so that the next ones travel meanwhile.
    """

    nodes: tuple[str, ...]
    steps: tuple[tuple[int | None, ...], ...]
    stages: int
    part_tuples: int
    overlap: Literal["none", "transfer"] = "none"

    def steps_in(self, number: int) -> tuple[int | None, ...]:
        """Return the step of every stage in time slot `number`; None: the stage is still empty.

        >>> Gates(nodes=("a", "b"), steps=((0, 1), (1, 0)), stages=3, part_tuples=1).steps_in(1)
        (1, 0, None)
        """
        period = len(self.steps)
        return tuple((number - stage) % period if number >= stage else None for stage in range(self.stages))


class Worked(NamedTuple):
    """Rows that a bolt executor has emitted and processed since the sources' start, according to its state."""

    emitted: int = 0
    processed: int = 0


class Division(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Division of a component's state among executors: their number, and the owners of key groups if it has any."""

    parallelism: Count
    owners: OwnerRuns = ()


def snapshot_sources(executor: str, stored: Mapping[str, Division]) -> Sequence[str]:
    """Return the executors whose snapshots an executor is restored from.

    Args:
        executor: name of the executor.
        stored: as in `RunSpec`.

    >>> snapshot_sources("count[1]", {}), sources("count[1]", {"count": Division(2)})
    (('count[1]',), ('count[0]', 'count[1]'))
    """
    component = executor.rpartition("[")[0]
    if component not in stored:
        return (executor,)
    return tuple([f"{component}[{index}]" for index in range(stored[component].parallelism)])


class RunSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Specification of a run, from which a worker creates its part of the topology.

    Attributes:
        run: id of the run, part of every trace row.
        epoch: number of this start of the topology, from 1.
        workload, params: name and parameters of the workload, which creates the operators.
        topology: the topology as a plain document.
        executors: every executor of the topology in its order, with its place.
        numbers: number of each of `executors`, in the same order. Once a component has been scaled in this epoch, all
            its executors have new numbers. Empty: positions in the list.
        workers: every worker of the run; a worker's number is its position here, and later ones are added at the end.
            One without executors waits for a move.
        owners: of the key groups of every component with a fields grouping.
        addresses: data address of every node in use.
        key: secret of the run for handshakes, hex.
        rate: the sources' rate as a plain document (`workloads.rates`).
        seed: seed of the run.
        inputs: prepared inputs, present in the node's input folder.
        shared_clock: whether all nodes read the same monotonic clock (one host).
        restore: number of the checkpoint to restore, whose snapshots are in the node's folder; 0: none.
        stored: components whose state is divided otherwise in that checkpoint -> how.
        until: positions at which spout executors end, because they were stopped there before.
        worked: known counters of bolt executors in earlier epochs; work up to them counts as replayed.
        gates: the communication schedule that the run follows; None: rows are sent as soon as possible.
        observed: whether workers and agents also report what online schedulers need.
        buffer_bytes: size of the input queue of an executor; 0: the runtime's own.
        linger_us: microseconds that rows of an incomplete batch wait for others; None: as long as the load suggests.
        columns: whether operators process columns, so that workers are forked with Arrow in their memory.
    """

    run: str
    epoch: int
    workload: str
    params: Mapping[str, Any]
    topology: Mapping[str, Any]
    executors: tuple[ExecutorSpec, ...]
    addresses: Mapping[str, str]
    key: str
    rate: Mapping[str, Any]
    seed: int
    workers: tuple[Slot, ...]
    numbers: tuple[Count, ...] = ()
    owners: Mapping[str, OwnerRuns] = {}
    inputs: tuple[InputFile, ...] = ()
    shared_clock: bool = True
    restore: int = 0
    stored: Mapping[str, Division] = {}
    until: Mapping[str, int] = {}
    worked: Mapping[str, Worked] = {}
    gates: Gates | None = None
    observed: bool = False
    buffer_bytes: Count = 0
    linger_us: Count | None = None
    columns: bool = False

    @property
    def numbered(self) -> tuple[int, ...]:
        """Number of each of `executors`, in their order."""
        return self.numbers or tuple(range(len(self.executors)))

    @property
    def divisions(self) -> dict[str, Division]:
        """Division of the state of every component."""
        counted = Counter([executor.component for executor in self.executors])
        return {component: Division(count, self.owners.get(component, ())) for component, count in counted.items()}

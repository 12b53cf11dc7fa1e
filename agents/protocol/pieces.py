"""Parts of messages: places, executors, and the specification of a run."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from inventory.foreign import printable_all

VERSION = 6

AGENT = -1
"""The slot in reports of an agent about itself."""

MAX_LINE = 16 * 1024 * 1024
"""Most bytes of an accepted line."""

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


class Place(Struct, frozen=True, forbid_unknown_fields=True):
    """A worker process: the node's id and the slot's index on it."""

    node: str
    slot: SlotIndex


class ExecutorSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """One executor and where it runs; its number is its position in the topology's executor list."""

    component: str
    index: int
    place: Place


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


def workers_of(executors: Iterable[ExecutorSpec]) -> tuple[Place, ...]:
    """Return the workers of these executors, in the order of their numbers at the start."""
    return tuple(sorted({entry.place for entry in executors}, key=lambda place: (place.node, place.slot)))


class Move(Struct, frozen=True, forbid_unknown_fields=True):
    """A move of one executor, by name, to another place."""

    executor: str
    to: Place


class Gates(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A communication schedule: to which node each node may send in which time slot, and how much.

    Attributes:
        nodes: ids; a node's number is its position here.
        steps: per step, per sending node, the number of the node that it may send to; None: to none. A round is
            one time slot per step.
        stages: of the pipeline: components of level l are one step behind those of level l - 1; 1: all are at the same
            step.
        part_tuples: most tuples that one executor may send to another per time slot.
    """

    nodes: tuple[str, ...]
    steps: tuple[tuple[int | None, ...], ...]
    stages: int
    part_tuples: int

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


class RunSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Specification of a run, from which a worker creates its part of the topology.

    Attributes:
        run: id of the run, part of every trace row.
        epoch: number of this start of the topology, from 1.
        workload, params: name and parameters of the workload, which creates the operators.
        topology: the topology as a plain document.
        executors: every executor of the topology in its order, with its place.
        workers: every worker of the run; a worker's number is its position here, and later ones are added at the end.
            One without executors waits for a move.
        addresses: data address of every node in use.
        key: secret of the run for handshakes, hex.
        rate: the sources' rate as a plain document (`workloads.rates`).
        seed: seed of the run.
        inputs: prepared inputs, present in the node's input folder.
        shared_clock: whether all nodes read the same monotonic clock (one host).
        restore: number of the checkpoint to restore, whose snapshots are in the node's folder; 0: none.
        until: positions at which spout executors end, because they were stopped there before.
        worked: known counters of bolt executors in earlier epochs; work up to them counts as replayed.
        gates: the communication schedule that the run follows; None: rows are sent as soon as possible.
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
    workers: tuple[Place, ...]
    inputs: tuple[InputFile, ...] = ()
    shared_clock: bool = True
    restore: int = 0
    until: Mapping[str, int] = {}
    worked: Mapping[str, Worked] = {}
    gates: Gates | None = None

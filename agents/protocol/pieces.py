"""What messages are made of: places, executors, and all that a worker must know of a run."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from inventory.foreign import printable_all

VERSION = 6

AGENT = -1
"""The slot of what an agent says of itself."""

MAX_LINE = 16 * 1024 * 1024
"""Bytes of the longest line that is accepted."""

HEARTBEAT_S = 1.0
SILENCE_S = 15.0
"""An agent without a heartbeat for so long acts as on end of file."""


Count = Annotated[int, Meta(ge=0, le=2**53)]
"""A number of things, or a duration in nanoseconds; sums over all workers of a run stay within 64 bits."""

Whole = Annotated[int, Meta(ge=-(2**61), le=2**61)]
"""A reading of a clock, or a number that counts from one; sums and differences of a few stay within 64 bits."""

SlotIndex = Annotated[int, Meta(ge=AGENT, le=2**31 - 1)]
"""A slot of a node, or `AGENT`."""

Port = Annotated[int, Meta(ge=0, le=65535)]

Fact = str | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float | list[str] | None
"""What a node says of itself under one name."""


class Message(Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True, omit_defaults=True):
    """One line."""


def make_printable(said: Struct, *names: str) -> None:
    """Make these attributes of what a process says in its own words printable; to be called when it is made.

    That is when it is sent, so that no line gets too long, and again when it is read, for a sender may be anybody.
    """
    for name in names:
        value = getattr(said, name)
        force_setattr(
            said, name, tuple(map(printable_all, value)) if isinstance(value, tuple) else printable_all(value)
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
    """What a node draws without workers.

    Attributes:
        watts: all terms of its total together; None when that is not known.
        stddev_watts: standard deviation of the parts' means.
        seconds: how long was measured.
        load: busy share of all cores meanwhile.
        domains: watts of each term.
        attempts: how often it was measured.
        flags: `unsteady`, `loaded`.
        reason: why it is not known; empty when it is.
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
    """One file of the kernel that was set, in the file's own unit (clocks are in kHz).

    Attributes:
        setting: which, in words, like `governor of policy0`.
        before: what it held.
        asked: what was asked for.
        got: what was read back; None when it could not be.
        ok: whether that is what was asked for, up to the driver's steps.
        reason: why not, in words; empty when there is nothing to say.
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
    """The workers that these executors need, in the order in which they are numbered at first."""
    return tuple(sorted({entry.place for entry in executors}, key=lambda place: (place.node, place.slot)))


class Move(Struct, frozen=True, forbid_unknown_fields=True):
    """One executor, by name, and where it goes."""

    executor: str
    to: Place


class Gates(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A communication schedule: to which node each node may send in which time slot, and how much.

    Attributes:
        nodes: ids; a node's number is its position here.
        steps: per step, per sending node, the number of the node that it may send to; None: to none. A round is
            one time slot per step.
        stages: of the pipeline: what leaves components of level l is one step behind what leaves those of level l - 1;
            1: all are at the same step.
        part_tuples: most tuples that one executor may send to another in one time slot.
    """

    nodes: tuple[str, ...]
    steps: tuple[tuple[int | None, ...], ...]
    stages: int
    part_tuples: int

    def steps_in(self, number: int) -> tuple[int | None, ...]:
        """The step of every stage in time slot `number`; None: the stage is still empty.

        >>> Gates(nodes=("a", "b"), steps=((0, 1), (1, 0)), stages=3, part_tuples=1).steps_in(1)
        (1, 0, None)
        """
        period = len(self.steps)
        return tuple((number - stage) % period if number >= stage else None for stage in range(self.stages))


class Worked(NamedTuple):
    """Rows that a bolt executor has emitted and processed since the sources' start, by the state that it has."""

    emitted: int = 0
    processed: int = 0


class RunSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """All that a worker must know to run its part of a topology.

    Attributes:
        run: id of the run, part of every trace row.
        epoch: number of this start of the topology, from 1.
        workload, params: what to make operators from.
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
        restore: number of the checkpoint to begin from, whose snapshots lie in the node's folder; 0: from nothing.
        until: positions at which spout executors end, because they had been stopped there before.
        worked: what bolt executors are known to have worked before; what comes again is counted apart.
        gates: the communication schedule that the run follows; None: everything leaves when it can.
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

"""Third-party parts of Millrace: three schedulers (one is right), a workload and a sensor."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from millrace import (
    NOTHING,
    Batch,
    Bolt,
    Component,
    Context,
    Emitted,
    FreeSlots,
    Input,
    Meta,
    Needs,
    Operator,
    Placement,
    Plan,
    PreparedInput,
    Problem,
    Row,
    Sensor,
    Slot,
    Spout,
    Topology,
    TraceRow,
    Verdict,
    assigned,
    concluded,
    rows_differ,
    running,
    waiting,
)

UPTIME = Path("/proc/uptime")


@dataclass(frozen=True)
class FirstFitParams:
    """Parameters of `sample-first-fit`.

    Attributes:
        per_slot: executors per slot.
    """

    per_slot: Annotated[int, Meta(ge=1)] = 4


class FirstFit:
    """Fills slot after slot, node after node."""

    name: ClassVar[str] = "sample-first-fit"
    paper: ClassVar[str] = "folklore"
    needs: ClassVar[Needs] = Needs(cycles=True, ignores="everything but free slots")
    Params: ClassVar[type] = FirstFitParams

    def __init__(self, params: FirstFitParams) -> None:
        self.per_slot = params.per_slot

    def place(self, problem: Problem) -> Plan:
        free, workers = FreeSlots(problem), running(problem)
        placements: dict[str, Placement] = {}
        for topology in problem.topologies:
            placed = assigned(workers[topology.id])
            todo = waiting(topology, workers[topology.id])
            for first in range(0, len(todo), self.per_slot):
                slot = next((slot for node in free.nodes() for slot in free.of(node)), None)
                if slot is None:
                    break
                free.take(slot)
                placed |= dict.fromkeys(todo[first : first + self.per_slot], slot)
            placements[topology.id] = concluded(
                topology, placed, "" if len(placed) == len(topology.executors) else "no free slot"
            )
        return Plan(placements, details={"per_slot": self.per_slot})


class Wrong(FirstFit):
    """Puts everything into a slot that no node has."""

    name: ClassVar[str] = "sample-wrong"

    def place(self, problem: Problem) -> Plan:
        nowhere = Slot(problem.cluster.nodes[0].id, 99)
        return Plan({t.id: Placement(dict.fromkeys(t.executors, nowhere)) for t in problem.topologies})


class Endless(FirstFit):
    """Never comes to an answer."""

    name: ClassVar[str] = "sample-endless"

    def place(self, problem: Problem) -> Plan:
        while True:
            problem.cluster.by_id.get("")


class Counting(Spout):
    """Emits 0, 1, 2, ...; executor i of n emits the numbers i, i + n, ..."""

    def open(self, context: Context) -> None:
        self.next, self.step, self.limit = context.index, context.parallelism, context.params["limit"]

    def next_batch(self, limit: int) -> Sequence[Row]:
        rows = [(n,) for n in range(self.next, self.limit, self.step)][:limit]
        self.next += self.step * len(rows)
        return rows

    def snapshot(self) -> bytes:
        return str(self.next).encode()

    def restore(self, state: bytes) -> None:
        self.next = int(state)


class Total(Bolt):
    """Adds up what it receives."""

    answer_table: ClassVar[str] = "total"
    answer_schema: ClassVar[Mapping[str, str]] = {"name": "str", "sum": "int"}

    def __init__(self) -> None:
        self.sum = 0

    def process(self, batch: Batch) -> Emitted:
        self.sum += sum(number for (number,) in batch.rows)
        return NOTHING

    def snapshot(self) -> bytes:
        return str(self.sum).encode()

    def restore(self, state: bytes) -> None:
        self.sum = int(state)

    def answer(self) -> Iterable[Row]:
        return [("all", self.sum)]


@dataclass(frozen=True)
class NumbersParams:
    """Parameters of `sample-numbers`.

    Attributes:
        limit: how many numbers there are.
    """

    limit: Annotated[int, Meta(ge=1)] = 1000


class Numbers:
    """The sum of the first numbers."""

    name: ClassVar[str] = "sample-numbers"
    summary: ClassVar[str] = "adds up the first numbers"
    paper: ClassVar[str] = ""
    Params: ClassVar[type] = NumbersParams

    def __init__(self, params: NumbersParams) -> None:
        self.params = params

    def topology(self) -> Topology:
        return Topology(
            id="sample-numbers",
            workers=2,
            components=(
                Component(id="numbers", kind="spout", parallelism=2, outputs={"default": {"n": "int"}}),
                Component(id="total", kind="bolt", inputs=(Input("numbers", "global"),)),
            ),
        )

    def operator(self, component: str) -> Operator:
        return {"numbers": Counting, "total": Total}[component]()

    def prepare(self, folder: Path) -> Sequence[PreparedInput]:
        return []

    def reference(self, positions: Sequence[int], inputs: Sequence[PreparedInput]) -> Mapping[str, Sequence[Row]]:
        emitted = (index + len(positions) * k for index, count in enumerate(positions) for k in range(count))
        return {"total": [("all", sum(emitted))]}

    def compare(self, answer: Mapping[str, Any], reference: Mapping[str, Any]) -> Verdict:
        differences = rows_differ(answer["total"], reference["total"], key_fields=1)
        return Verdict(not differences, 1, "; ".join(differences))


class UptimeSensor(Sensor):
    """Writes how long the machine has been up, as an event."""

    summary = "how long the machine has been up"

    def probe(self) -> str | None:
        return None if UPTIME.exists() else f"there is no {UPTIME}"

    def read(self, now_ns: int) -> Iterable[TraceRow]:
        seconds = float(UPTIME.read_text().split()[0])
        return [TraceRow("event", now_ns, ("uptime", self.host.node, "", seconds))]

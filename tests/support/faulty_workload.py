"""Third-party workload whose operators fail at their checkpoints, as its parameter `action` says."""

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from workloads.operators import NOTHING, Batch, Bolt, Context, Emitted, Operator, Row, Spout
from workloads.topology import Component, Input, Topology
from workloads.workload import PreparedInput, Verdict

NAME = "faulty"


class UnexpectedError(BaseException):
    """Exception that nothing handles."""


class NotIterable:
    """Value that cannot be converted to any type, nor to rows."""

    def __iter__(self) -> Any:
        raise UnexpectedError("no row")


def install(site: Path) -> None:
    """Write the metadata that make `site`, a folder for PYTHONPATH, an installation of this workload."""
    info = site / f"{NAME}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[millrace.workloads]\n{NAME} = {__name__}:Faulty\n")


class _FaultyOperator:
    """Performs the action of its component, and logs the time."""

    def open(self, context: Context) -> None:
        component, _, self.action = context.params["action"].partition(" ")
        self.mine = component == context.component
        self.clock = Path(context.params["clock"])
        self.next, self.step = context.index, context.parallelism

    def _is_due(self, action: str) -> bool:
        """Return whether `action` is due now; log the time if so."""
        if not self.mine or self.action != action:
            return False
        with self.clock.open("a") as file:
            file.write(json.dumps(time.monotonic()) + "\n")
        return True

    def snapshot(self) -> Any:
        if self._is_due("none"):
            return None
        if self._is_due("raise"):
            raise ValueError("no state today")
        if self._is_due("exit"):
            sys.exit(3)
        if self._is_due("odd"):
            raise UnexpectedError("nothing that anybody expects")
        return b"1"

    def restore(self, state: bytes) -> None:
        if self._is_due("restore"):
            raise KeyError("state")


class Counting(_FaultyOperator, Spout):
    """Emits 0, 1, 2, ..."""

    def next_batch(self, limit: int) -> Sequence[Row]:
        rows = [(self.next + at * self.step,) for at in range(limit)]
        self.next += self.step * limit
        return rows


class Sink(_FaultyOperator, Bolt):
    """Accepts rows, and settles what `action` says."""

    answer_table: ClassVar[str] = "total"
    answer_schema: ClassVar[Mapping[str, str]] = {"sum": "int"}

    def process(self, batch: Batch) -> Emitted:
        return NOTHING

    def settled(self) -> Iterable[Any]:
        if self._is_due("settle exit"):
            sys.exit(3)
        return [NotIterable()] if self._is_due("settle odd") else ()


@dataclass(frozen=True)
class FaultyParams:
    """Parameters of `faulty`.

    Attributes:
        action: component and its action.
        clock: file that gets the time of each action.
    """

    action: str = ""
    clock: str = ""


class Faulty:
    """Two spout executors and one sink."""

    name: ClassVar[str] = NAME
    summary: ClassVar[str] = "fails at checkpoints"
    paper: ClassVar[str] = ""
    Params: ClassVar[type] = FaultyParams

    def __init__(self, params: FaultyParams) -> None:
        self.params = params

    def topology(self) -> Topology:
        return Topology(
            id=NAME,
            workers=2,
            components=(
                Component(id="source", kind="spout", parallelism=2, outputs={"default": {"n": "int"}}),
                Component(id="sink", kind="bolt", inputs=(Input("source", "global"),)),
            ),
        )

    def operator(self, component: str) -> Operator:
        return {"source": Counting, "sink": Sink}[component]()

    def prepare(self, folder: Path) -> Sequence[PreparedInput]:
        return []

    def reference(self, positions: Sequence[int], inputs: Sequence[PreparedInput]) -> Mapping[str, Sequence[Row]]:
        return {"total": []}

    def compare(self, answer: Mapping[str, Any], reference: Mapping[str, Any]) -> Verdict:
        return Verdict(True, 0, "")

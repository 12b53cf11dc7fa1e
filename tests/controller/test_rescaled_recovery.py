"""Checkpoints restored by other numbers of executors: the answer stays the same, indivisible state is refused."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from scripted_run import LAST, Limits, ScriptedRun, run_spec
from scripted_workload import answer_tables, with_inputs
from taxi_rows import row, write_rows

from agents.protocol import Connect, Cut, Go, Passed, Prepare, Ready, RunSpec, Slot, Stop, Stored, Worked
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.spout import SpoutExecutor
from agents.worker.task_graph.interfaces import AnswerRows
from controller.coordinator.checkpoint_store import CheckpointStore
from controller.simulation.cluster import MemoryReplicas, MessageQueue, NodeClock, SimulatedNode
from inventory.errors import RunError
from workloads.apps.wordcount import WordCount, WordCountParams
from workloads.apps.wordcount_operators import Count
from workloads.data.text import LineSpout
from workloads.operator_state import OperatorState
from workloads.operators import Batch, Bolt, Emitted, Operator, Row, Spout
from workloads.scaling import resized
from workloads.topology import Executor, GroupingKind, Input, Topology
from workloads.workload import Verdict, Workload, load_workload

NODES = ("n1", "n2", "n3")
LIMITS = Limits(batch_rows=7, batch_bytes=2000, window_rows=40, window_bytes=4000, turn_rows=5)
MAX_SWEEPS = 3000

Sizes = Mapping[str, int]
"""Component -> number of executors."""


class RescaledEpochs:
    """A run in which each epoch starts from the checkpoint of the previous one.

    Attributes:
        specs: specifications of the epochs so far.
        counted: rows that bolts have processed, without replays, by component.
        positions: highest position of each source so far.
        cuts: positions of the sources, by index, at each checkpoint after which their number changes.
    """

    def __init__(
        self,
        workload: Workload,
        folder: Path,
        seed: int,
        rate: Mapping[str, Any] | None = None,
        aligns: bool = True,
    ) -> None:
        """Prepare the run; without `aligns`, sources stop at different positions."""
        self._workload, self._inputs = workload, workload.prepare(folder)
        self._rate = {"kind": "max"} if rate is None else rate
        self._spouts = {each.id for each in workload.topology().components if each.kind == "spout"}
        self._aligns = aligns
        self.cuts: list[list[int]] = []
        self._random, self._seed = Random(seed), seed  # noqa: S311 - it must be repeatable
        agents = MessageQueue[Any](print, None)  # there are none
        self._nodes = {name: SimulatedNode(NodeClock(), agents, agents) for name in NODES}
        self._replicas = MemoryReplicas(self._nodes)
        self._store = CheckpointStore(self._replicas)
        self.specs: list[RunSpec] = []
        self.counted: Counter[str] = Counter()
        self._worked: dict[str, Worked] = {}
        self.positions: dict[str, int] = {}

    def run_epochs(self, epochs: Sequence[Sizes]) -> Verdict:
        """Run an epoch per entry, the last one to the end of the input; return the verdict on the answer."""
        with LIMITS.applied():
            sizes = epochs[0]
            for after in epochs[1:]:
                run = self._start(sizes)
                self._sweep(run, self._random.randint(5, 30))
                changes = {spout for spout in self._spouts if sizes.get(spout) != after.get(spout)}
                kept = {spout: sizes[spout] for spout in changes & sizes.keys()}
                # Sources whose input has ended keep their number.
                sizes = after if self._checkpoint(run, bool(changes)) else {**after, **kept}
                self._sweep(run, self._random.randint(0, 20))
                self._report(run)
                if changes:
                    self.positions.clear()
            run = self._start(sizes)
            self._sweep(run, 30)
            for place in run.workers:
                run.command(place, Stop(epoch=len(epochs), positions=self.positions))
            run.run([], self._seed)
            self._report(run)
        positions = [spout.position for spout in sorted(run.spouts, key=lambda spout: spout.executor.index)]
        return self._workload.compare(self.answer(), self._workload.reference(positions, self._inputs))

    def _start(self, sizes: Sizes) -> ScriptedRun:
        random, slots = self._random, [Slot(node, slot) for node in NODES for slot in range(2)]
        topology = resized(self._workload.topology(), sizes)
        places = [random.choice(slots) for _ in topology.executors]
        spec = run_spec(topology, places, epoch=len(self.specs) + 1, rate=self._rate)
        spec = replace(self._store.restoring(spec), worked=self._worked)
        self.specs.append(spec)
        named = {executor.name: place for executor, place in zip(topology.executors, places, strict=True)}
        asyncio.run(self._store.distribute(named, spec.stored))
        run = ScriptedRun(with_inputs(self._workload, self._inputs), LIMITS)
        for place in spec.workers:
            run.add(spec, place, self._nodes[place.node].files)
        for place in spec.workers:
            run.command(place, Connect(epoch=spec.epoch, ports={}))
            run.command(place, Go(epoch=spec.epoch, at_ns=0))
        return run

    def _report(self, run: ScriptedRun) -> None:
        """Record the progress of all executors, as the controller would; then the epoch ends."""
        for name, running in run.executors.items():
            if isinstance(running, BoltExecutor):
                before, now = self._worked.get(name, Worked()), running.worked
                self._worked[name] = Worked(*map(max, before, now))
                self.counted[running.executor.component] += running.meter.processed
            elif isinstance(running, SpoutExecutor):
                self.positions[name] = max(running.position, self.positions.get(name, 0))

    def _sweep(self, run: ScriptedRun, times: int) -> None:
        for _ in range(times):
            run.sweep(self._random, 1_000_000)

    def _checkpoint(self, run: ScriptedRun, aligned: bool) -> bool:
        """Store a checkpoint; return whether a different number of sources can continue from it."""
        spec = self.specs[-1]
        barrier = spec.epoch
        halt = aligned or self._random.random() < 0.5
        for place in run.workers:
            run.command(place, Prepare(epoch=barrier, barrier=barrier, store=True, halt=halt))
        ready = [report for worker in run.workers.values() for report in worker.reports if isinstance(report, Ready)]
        assert [report.refused for report in ready] == [""] * len(run.workers)
        found = [report.records for report in ready]
        aligned = aligned and None not in found
        records = max(each or 0 for each in found) if aligned and self._aligns else 0
        for place in run.workers:
            tick = max(report.tick for report in ready)
            run.command(place, Cut(epoch=barrier, barrier=barrier, tick=tick, records=records))
        stored: dict[str, tuple[str, Stored]] = {}
        passed = 0
        for _ in range(MAX_SWEEPS):
            self._sweep(run, 1)
            for place, worker in run.workers.items():
                passed += sum(isinstance(report, Passed) for report in worker.reports)
                stored |= {r.executor: (place.node, r) for r in worker.reports if isinstance(r, Stored)}
                worker.reports.clear()
            if passed == len(run.workers) and len(stored) == len(spec.executors):
                asyncio.run(self._store.store(barrier, stored, spec.divisions))
                if aligned:
                    at = self._store.positions
                    self.cuts.append([at[name] for name in sorted(at, key=lambda name: Executor.named(name).index)])
                return aligned
        raise RunError("the barrier does not pass")

    def answer(self) -> Mapping[str, Sequence[Row]]:
        """Return all rows of the answer, by table."""
        settled = [self._replicas.files[part.name] for part in self._store.parts]
        last = [part for node in self._nodes.values() for name, part in node.files.items() if name.startswith(LAST)]
        return answer_tables([part for part in (*settled, *last) if isinstance(part, AnswerRows)])


TEXT = "call me ishmael some years ago never mind how long precisely having little or no money in my purse\n" * 9


def texts(folder: Path) -> Mapping[str, Any]:
    (folder / "text.txt").write_text(TEXT)
    return {"text": str(folder / "text.txt"), "ackers": 0}


def wordcount(folder: Path) -> Workload:
    return load_workload("wordcount", {**texts(folder), "parallelism": {"spout": 2, "split": 2, "count": 4}})


def combined(folder: Path) -> Workload:
    few = {"spout": 2, "split": 2, "count": 4}
    return load_workload("wordcount", {**texts(folder), "parallelism": few, "combine": True})


def exclamation(folder: Path) -> Workload:
    return load_workload("exclamation", {**texts(folder), "parallelism": {"word": 2, "exclaim1": 2, "exclaim2": 2}})


def top_n(folder: Path) -> Workload:
    few = {"read": 2, "count": 2, "rank": 2, "merge": 2}
    windows = {"n": 3, "window_s": 0.3, "slide_s": 0.1, "words_per_s": 100}
    return load_workload("top-n", {**texts(folder), "parallelism": few, **windows})


def trips(folder: Path, step: tuple[float, float] = (5986, 4491.556)) -> Path:
    rows = [
        row(60 + 10 * k, ((k * k) % 7 + 1, 1), (k % 5 + 1, k % 3 + 1), f"taxi {k % 11}", f"{k % 9}.00", step=step)
        for k in range(1200)
    ]
    return write_rows(folder / "trips.csv", rows)


def taxi(folder: Path) -> Workload:
    few = {"parse": 2, "route": 2, "count": 3, "rank": 2}
    return load_workload("taxi", {"input": str(trips(folder)), "parallelism": few, "answer": "both"})


def taxi_profit(folder: Path) -> Workload:
    few = {"parse": 2, "amount": 2, "profit": 3, "taxi": 3, "value": 2}
    path = trips(folder, (2993, 2245.778))
    return load_workload("taxi-profit", {"input": str(path), "parallelism": few, "answer": "both"})


def smart_home(folder: Path) -> Workload:
    lines = [f"{k},{1_377_986_400 + 2 * k},{k % 23},{k % 3 and 1},{k % 4},{k % 2},{k % 3}" for k in range(300)]
    path = write_rows(folder / "readings.csv", lines)
    few = {"source": 2, "house": 2, "plug": 3, "sink": 2}
    slices = {"slices": [60, 120], "day_s": 360, "fill": "work"}
    return load_workload("smart-home", {"input": str(path), "parallelism": few, **slices})


ELASTIC: Mapping[str, tuple[Callable[[Path], Workload], tuple[str, ...]]] = {
    "wordcount": (wordcount, ("split", "count")),
    "combined": (combined, ("count",)),
    "exclamation": (exclamation, ("exclaim1", "exclaim2")),
    "top-n": (top_n, ("count", "rank", "merge")),
    "taxi": (taxi, ("route", "count", "rank", "merge", "log")),
    "taxi-profit": (taxi_profit, ("amount", "profit", "taxi", "value", "merge", "log")),
    "smart-home": (smart_home, ("house", "plug", "sink")),
}
"""Workloads, and their components that can have any number of executors."""


def test_word_counts_are_right_with_four_then_five_then_three_executors(tmp_path: Path) -> None:
    run = RescaledEpochs(wordcount(tmp_path), tmp_path / "inputs", 1)
    verdict = run.run_epochs([{"count": 4}, {"count": 5}, {"count": 3}])
    assert verdict.passed, verdict.message
    assert verdict.checked > 10
    first, second, third = run.specs
    assert (first.stored, second.stored, third.stored) == (
        {},
        {"count": first.divisions["count"]},
        {"count": second.divisions["count"]},
    )
    assert [run for run in second.owners["count"] if run[0] == 4] == [(4, 51)] * 4
    assert {owner for owner, _ in third.owners["count"]} == {0, 1, 2}


@pytest.mark.parametrize("name", sorted(ELASTIC))
def test_the_answer_is_right_after_any_changes_of_the_numbers_of_executors(tmp_path: Path, name: str) -> None:
    make_workload, components = ELASTIC[name]
    for seed in range(2):
        random = Random(seed)  # noqa: S311 - repeatable
        epochs = [{component: random.randint(1, 5) for component in components} for _ in range(3)]
        run = RescaledEpochs(make_workload(tmp_path), tmp_path / "inputs", seed)
        verdict = run.run_epochs([{}, *epochs])
        assert verdict.passed, (epochs, verdict.message)
        assert verdict.checked > 0
        assert any(spec.stored for spec in run.specs)


def test_rows_count_once_although_executors_that_had_processed_them_since_the_checkpoint_are_gone(
    tmp_path: Path,
) -> None:
    for seed in range(3):
        run = RescaledEpochs(wordcount(tmp_path), tmp_path / "inputs", seed)
        assert run.run_epochs([{"split": 4, "count": 4}, {"split": 2, "count": 2}]).passed
        words = sum(count for _, count in run.answer()["counts"])
        assert run.counted == {"split": sum(run.positions.values()), "count": words}, seed
        assert words > 0


SPOUTS = {
    "wordcount": "spout",
    "combined": "spout",
    "exclamation": "word",
    "top-n": "read",
    "taxi": "parse",
    "taxi-profit": "parse",
    "smart-home": "source",
}
RATES: list[Mapping[str, Any]] = [
    {"kind": "max"},
    {"kind": "constant", "tuples_per_s": 3000.0},
    {"kind": "poisson", "tuples_per_s": 3000.0},
    {"kind": "replay", "speedup": 3000.0},
]


def rescaled_sources(folder: Path, name: str, seed: int) -> None:
    make_workload, components = ELASTIC[name]
    folder.mkdir(exist_ok=True)
    random = Random(seed)  # noqa: S311 - repeatable
    rate = RATES[seed % (4 if name in ("top-n", "taxi", "taxi-profit", "smart-home") else 3)]
    sizes = [
        {SPOUTS[name]: size, **{each: random.randint(1, 3) for each in components if random.random() < 0.3}}
        for size in random.sample([1, 3, 4, 5], 3)
    ]
    run = RescaledEpochs(make_workload(folder), folder / "inputs", seed, rate)
    verdict = run.run_epochs([{}, *sizes])
    assert verdict.passed, (name, seed, sizes, run.cuts, verdict.message)
    assert verdict.checked > 0
    assert run.cuts


@pytest.mark.parametrize("name", sorted(ELASTIC))
def test_any_number_of_sources_continues_after_the_same_record(tmp_path: Path, name: str) -> None:
    rescaled_sources(tmp_path, name, sorted(ELASTIC).index(name))


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(ELASTIC))
def test_sources_continue_after_the_same_record_at_any_rate(tmp_path: Path, name: str) -> None:
    for seed in range(7, 12):
        rescaled_sources(tmp_path / str(seed), name, seed)


class Unseekable(Spout):
    """Line spout without `seek`."""

    def __init__(self) -> None:
        self._lines = LineSpout()
        self.open, self.next_batch = self._lines.open, self._lines.next_batch  # type: ignore[method-assign]
        self.snapshot, self.restore = self._lines.snapshot, self._lines.restore  # type: ignore[method-assign]


class UnseekableWordCount(WordCount):
    """Word count whose spout has no `seek`."""

    def operator(self, component: str) -> Operator:
        return Unseekable() if component == "spout" else super().operator(component)


def test_sources_without_seek_keep_their_number(tmp_path: Path) -> None:
    workload = UnseekableWordCount(WordCountParams(**texts(tmp_path), parallelism={"spout": 2, "split": 2, "count": 2}))
    with pytest.raises(RunError, match=r"spout had 2 executors .* keeps that number: its spout has no seek\(\)"):
        RescaledEpochs(workload, tmp_path / "inputs", 1).run_epochs([{}, {"spout": 3}])


def test_sources_that_have_not_emitted_the_first_records_are_not_scaled(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"sources at \d+, \d+ have not emitted the first \d+ records"):
        RescaledEpochs(wordcount(tmp_path), tmp_path / "inputs", 5, RATES[2], aligns=False).run_epochs(
            [{}, {"spout": 3}]
        )


def test_state_is_not_divided_again_if_the_numbers_stay(tmp_path: Path) -> None:
    run = RescaledEpochs(wordcount(tmp_path), tmp_path / "inputs", 2)
    assert run.run_epochs([{}, {}, {}]).passed
    assert [spec.restore for spec in run.specs] == [0, 1, 2]
    assert [spec.stored for spec in run.specs] == [{}, {}, {}]
    assert len({str(spec.owners) for spec in run.specs}) == 1


class Opaque(Bolt):
    """Count without access to the state of single key groups."""

    answer_table, answer_schema = Count.answer_table, Count.answer_schema

    def __init__(self) -> None:
        self._count = Count()

    def process(self, batch: Batch) -> Emitted:
        return self._count.process(batch)

    def answer(self) -> Iterable[Row]:
        return self._count.answer()

    def snapshot(self) -> bytes:
        return OperatorState(self._count).snapshot()

    def restore(self, state: bytes) -> None:
        OperatorState(self._count).restore(state)


class ModifiedWordCount(WordCount):
    """Word count with another bolt or grouping for its counts."""

    count: type[Bolt] = Count
    inputs: tuple[Input, ...] = (Input("split", "fields", ("word",)),)

    def topology(self) -> Topology:
        topology = super().topology()
        components = [replace(c, inputs=self.inputs) if c.id == "count" else c for c in topology.components]
        return replace(topology, components=tuple(components))

    def operator(self, component: str) -> Operator:
        return self.count() if component == "count" else super().operator(component)


@pytest.mark.parametrize(
    ("count", "grouping", "sizes", "why"),
    [
        (Opaque, "fields", {"count": 3}, "count had 2 executors .* not all of its state is KeyedState"),
        (Count, "shuffle", {"count": 3}, "count had 2 executors .* not one of a single key"),
    ],
)
def test_a_component_whose_state_cannot_be_divided_keeps_its_number_of_executors(
    tmp_path: Path, count: type[Bolt], grouping: GroupingKind, sizes: Mapping[str, int], why: str
) -> None:
    workload = ModifiedWordCount(WordCountParams(**texts(tmp_path), parallelism={"spout": 2, "split": 2, "count": 2}))
    workload.count, workload.inputs = count, (Input("split", grouping, ("word",) if grouping == "fields" else ()),)
    with pytest.raises(RunError, match=why):
        RescaledEpochs(workload, tmp_path / "inputs", 1).run_epochs([{}, sizes])
    assert RescaledEpochs(workload, tmp_path / "again", 1).run_epochs([{}, {}]).passed == (grouping == "fields")

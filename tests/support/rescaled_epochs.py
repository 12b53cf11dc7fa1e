"""A workload on the scripted data plane whose components change their parallelism after every recovery."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from msgspec.structs import replace
from scripted_run import LAST, Limits, ScriptedRun, run_spec
from scripted_workload import answer_tables, with_inputs

from agents.protocol import Connect, Cut, Go, Passed, Prepare, Ready, RunSpec, Slot, Stop, Stored, Worked
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.spout import SpoutExecutor
from agents.worker.task_graph.interfaces import AnswerRows
from controller.coordinator.checkpoint_store import CheckpointStore
from controller.simulation.cluster import MemoryReplicas, MessageQueue, NodeClock, SimulatedNode
from inventory.errors import RunError
from workloads.operators import Row
from workloads.scaling import resized
from workloads.topology import Executor
from workloads.workload import Verdict, Workload

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

"""A workload on the scripted data plane whose components are scaled while it runs."""

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from scripted_run import LAST, Limits, ScriptedRun, run_spec
from scripted_workload import answer_tables

from agents.protocol import Abandon, Cut, Moved, Passed, Precopied, Precopy, Prepare, Ready, RunSpec, Slot, Stop
from agents.worker.task_graph.interfaces import AnswerRows
from controller.coordinator.epoch_workers import executor_name
from controller.coordinator.interfaces import Scaling
from controller.coordinator.scaling import rescaled_live
from workloads.workload import Verdict, Workload, load_workload

SLOTS = (Slot("n1", 0), Slot("n1", 1), Slot("n2", 0))
LIMITS = Limits(batch_rows=7, batch_bytes=2000, window_rows=40, window_bytes=4000, turn_rows=5)
TEXT = "call me ishmael some years ago never mind how long precisely having little or no money in my purse\n" * 9
MAX_SWEEPS = 3000


class LiveScalingRun:
    """A run that is scaled live, and the verdict on its answer."""

    def __init__(self, workload: Workload, folder: Path, seed: int) -> None:
        self.workload, self.inputs = workload, workload.prepare(folder)
        self.random, self.seed = Random(seed), seed  # noqa: S311 - it must be repeatable
        topology = workload.topology()
        spec = run_spec(topology, [self.random.choice(SLOTS) for _ in topology.executors])
        self.spec: RunSpec = spec
        self.reports: list[Moved] = []

    def sweep(self, run: ScriptedRun, times: int) -> None:
        for _ in range(times):
            run.sweep(self.random, 1_000_000)

    def command(self, run: ScriptedRun, command: Any) -> None:
        for place in self.random.sample(list(run.workers), len(run.workers)):
            run.command(place, command)
            self.sweep(run, self.random.choice([0, 0, 2]))

    def ready(self, run: ScriptedRun) -> list[Ready]:
        return [report for worker in run.workers.values() for report in worker.reports if isinstance(report, Ready)]

    def scale(
        self,
        run: ScriptedRun,
        barrier: int,
        sizes: Mapping[str, int],
        abandon: bool = False,
        copying: int | None = None,
    ) -> None:
        """Scale components at a barrier, or abandon it.

        State is pre-copied before, for at most `copying` sweeps; -1: not at all; None: random.
        """
        before = {component: division.parallelism for component, division in self.spec.divisions.items()}
        added = {
            f"{component}[{index}]": self.random.choice(self.spec.workers)
            for component, size in sizes.items()
            for index in range(before[component], size)
        }
        after = rescaled_live(self.spec, Scaling(sizes, added))
        for worker in run.workers.values():
            worker.reports.clear()
        copying = self.random.choice([-1, 0, 3, MAX_SWEEPS]) if copying is None else copying
        if copying >= 0:
            self.copy(run, barrier, after, copying)
        halts = any(running.executor.component in sizes for running in run.spouts)
        self.command(
            run, Prepare(epoch=1, barrier=barrier, store=True, halt=halts, scaled=after, workers=after.workers)
        )
        ready = self.ready(run)
        assert [report.refused for report in ready] == [""] * len(run.workers), [report.refused for report in ready]
        if abandon:
            self.command(run, Abandon(epoch=1, barrier=barrier))
            return
        tick, records = (max(getattr(report, name) or 0 for report in ready) for name in ("tick", "records"))
        self.command(run, Cut(epoch=1, barrier=barrier, tick=tick, records=records if halts else 0))
        for _ in range(MAX_SWEEPS):
            reports = [report for worker in run.workers.values() for report in worker.reports]
            if sum(isinstance(report, Passed) for report in reports) == len(run.workers):
                break
            self.sweep(run, 1)
        else:
            raise AssertionError("the barrier does not pass")
        self.spec = after
        moved = [report for report in reports if isinstance(report, Moved)]
        names = {f"{component}[{index}]" for component, size in sizes.items() for index in range(size)}
        assert {report.executor for report in moved} == names
        assert len(moved) == len(names)
        self.reports += moved
        assert {name: running.number for name, running in run.executors.items()} == {
            executor.name: number for number, executor in run.plan.executors.items()
        }

    def copy(self, run: ScriptedRun, barrier: int, after: RunSpec, sweeps: int) -> None:
        self.command(run, Precopy(epoch=1, barrier=barrier, moves=(), workers=after.workers, ports={}, scaled=after))
        names = {
            executor_name(e)
            for at, e in zip(after.numbered, after.executors, strict=True)
            if at not in self.spec.numbered
        }
        for _ in range(sweeps):
            reports = [report for worker in run.workers.values() for report in worker.reports]
            copied = [report.executor for report in reports if isinstance(report, Precopied)]
            assert len(copied) == len(set(copied))
            if set(copied) == names:
                return
            self.sweep(run, 1)
        assert sweeps < MAX_SWEEPS, "the copy does not end"

    def verdict(self, run: ScriptedRun) -> Verdict:
        """Stop the sources, drain, and compare the answer."""
        for place in run.workers:
            run.command(place, Stop(epoch=1))
        run.run([], self.seed)
        positions = [spout.position for spout in sorted(run.spouts, key=lambda spout: spout.executor.index)]
        files = [item for worker in run.workers.values() for item in worker.store.files.items()]
        parts = [part for _, part in files if isinstance(part, AnswerRows)]
        assert any(name.startswith(LAST) for name, _ in files)
        return self.workload.compare(answer_tables(parts), self.workload.reference(positions, self.inputs))


def wordcount(folder: Path, **params: Any) -> Workload:
    (folder / "text.txt").write_text(TEXT)
    few = {"spout": 2, "split": 2, "count": 4}
    return load_workload("wordcount", {"text": str(folder / "text.txt"), "ackers": 0, "parallelism": few, **params})

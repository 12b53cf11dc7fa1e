"""Runs on another engine, with scripted executors: stages, failures, and the detection of lost rows."""

import asyncio
import shutil
import struct
import subprocess
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from agents.protocol import Slot
from controller.coordinator.interfaces import Offset
from engines import conducting
from engines.conducting import MOST_DUE, DrainedRun, conduct, write_due
from engines.job import CONTROL, FINISH, GO, REPORTS, EngineJob
from engines.limits import RunLimits
from engines.programs import SOURCES
from engines.reports import Reports
from inventory.errors import InputError, RunError
from workloads.rates import Constant, Poisson
from workloads.schedules import PiecewiseConstant
from workloads.topology import Component, Input, Topology

TOPOLOGY = Topology(
    "t",
    (
        Component("source", "spout", 1, outputs={"default": {"x": "int"}}),
        Component("sink", "bolt", 1, inputs=(Input("source"),)),
    ),
)
PLACES = {"source[0]": Slot("n1", 0), "sink[0]": Slot("n2", 0)}


class ScriptedEngine:
    """Engine with scripted executors.

    Args:
        job: what it runs.
        lost: rows that never arrive.
        ends: reason for which the engine ends after the start; none if empty.
        gone: whether workers have ended.
        fault: error that the sink reports after the start; none if empty.
        mute: whether executors report nothing after the end of the sources.
        stuck: records that the source never emits, although they are due.
        marks: gets the marks of the run.
    """

    def __init__(
        self,
        job: EngineJob,
        marks: list[str],
        lost: int = 0,
        ends: str = "",
        gone: bool = False,
        fault: str = "",
        mute: bool = False,
        stuck: int = 0,
    ) -> None:
        self._job, self._lost, self._ends, self._gone, self._fault, self._mute = job, lost, ends, gone, fault, mute
        self._stuck = stuck
        self.places: Mapping[str, Slot] = PLACES
        self.marks = marks

    async def __aenter__(self) -> Self:
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._script = asyncio.create_task(self._run_script())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._script.cancel()

    def has_ended(self, worker: Slot, pid: int) -> bool:
        return self._gone

    def offset(self, node: str) -> Offset:
        return Offset(0, 0)

    async def go(self, times: Sequence[int]) -> None:
        (self._job.folder / CONTROL / "partial").write_text(" ".join(map(str, times)))
        (self._job.folder / CONTROL / "partial").rename(self._job.folder / CONTROL / GO)

    async def mark(self, kind: str) -> None:
        self.marks.append(kind)

    async def finish(self) -> None:
        (self._job.folder / CONTROL / FINISH).touch()

    async def collect_answers(self, places: Mapping[str, Slot]) -> None:
        assert places == PLACES

    def _write(self, name: str, *lines: str) -> None:
        with (self._job.folder / REPORTS / name).open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    async def _run_script(self) -> None:
        self._write("n1-0-1.tsv", "open\t1\tsource[0]")
        self._write("n2-0-2.tsv", "open\t1\tsink[0]")
        go = self._job.folder / CONTROL / "go"
        while not go.exists():
            await asyncio.sleep(0.01)
        if self._fault:
            self._write("n2-0-2.tsv", f"failed\t2\t{self._fault}")
        if self._ends:
            self.failed.set_result(self._ends)
        *_, end_ns = map(int, go.read_text().split())
        while time.monotonic_ns() < end_ns:
            await asyncio.sleep(0.01)
        if self._mute:
            return
        later = end_ns + 2_000_000_000
        due = 9 + self._stuck
        self._write(
            "n1-0-1.tsv",
            f"sent\t{later}\tsource[0]\tdefault\t9",
            f"totals\t{later}\tsource[0]\t0\t9\t0\t{due}\t1",
        )
        rows = 9 - self._lost
        self._write(
            "n2-0-2.tsv",
            f"channel\t{later}\tsink[0]\tsource[0]\tdefault\t{rows}",
            f"totals\t{later}\tsink[0]\t{rows}\t\t\t\t1",
        )
        while not (self._job.folder / CONTROL / "finish").exists():
            await asyncio.sleep(0.01)
        for name in ("n1-0-1.tsv", "n2-0-2.tsv"):
            self._write(name, "finished\t3")


class PlainEngine(ScriptedEngine):
    """Executors in one process, whose source takes `record_s` for a record."""

    classes = Path()
    record_s = 0.0

    async def _run_script(self) -> None:
        command = ("java", "-XX:+UseSerialGC", f"-Dmillrace.folder={self._job.folder}", "-cp", self.classes)
        process = await asyncio.create_subprocess_exec(
            *command, "millrace.PlainEngine", str(round(self.record_s * 1e9))
        )
        try:
            self.failed.set_result(f"the engine has ended with status {await process.wait()}")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


@pytest.fixture(scope="module")
def plain_engine(tmp_path_factory: pytest.TempPathFactory) -> type[PlainEngine]:
    """Compile what all engines have in common, and the engine of one thread."""
    if shutil.which("javac") is None:
        pytest.skip("no javac on this machine")
    PlainEngine.classes = tmp_path_factory.mktemp("classes")
    own = Path(__file__).parents[1] / "support" / "plain_engine" / "PlainEngine.java"
    sources = map(str, [*(SOURCES / "millrace").glob("*.java"), own])
    command = ["javac", "-nowarn", "-proc:none", "-d", str(PlainEngine.classes), *sources]
    subprocess.run(command, check=True, timeout=200)
    return PlainEngine


def outcome_of(
    folder: Path,
    drain_s: float = 60.0,
    engine_type: type[ScriptedEngine] = ScriptedEngine,
    settings: Mapping[str, str | int | float] | None = None,
    **how: object,
) -> tuple[DrainedRun, list[str]]:
    stages: list[str] = []

    @asynccontextmanager
    async def in_interval() -> AsyncIterator[None]:
        stages.append("begun")
        yield
        stages.append("ended")

    async def run() -> DrainedRun:
        addresses = {"n1": "127.0.0.1", "n2": "127.0.0.2"}
        job = EngineJob("run", "replay", TOPOLOGY, PLACES, addresses, folder, settings or {})
        job.write_properties()
        reports = Reports(folder / REPORTS, "run", TOPOLOGY)
        async with engine_type(job, stages, **how) as engine:  # type: ignore[arg-type]
            limits = RunLimits(None, [])
            return await conduct(
                job, engine, reports, limits, in_interval(), 0.1, 0.2, drain_s, lambda stage, _: stages.append(stage)
            )

    return asyncio.run(run()), stages


def test_a_run_passes_all_stages_from_opening_executors_to_collecting_answers(tmp_path: Path) -> None:
    outcome, stages = outcome_of(tmp_path)
    times = outcome.times
    assert stages == [
        "opening executors",
        "warming up",
        "measuring",
        "measure_start",
        "begun",
        "ended",
        "measure_end",
        "draining",
        "collecting answers",
    ]
    assert times.measure_start_ns - times.start_ns == 100_000_000
    assert times.measure_end_ns - times.measure_start_ns == 200_000_000
    assert times.stop_ns == times.measure_end_ns < times.drained_ns
    assert outcome.positions == {"source[0]": 9}
    assert outcome.places == PLACES


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"ends": "Nimbus ended by signal 9"}, "^Nimbus ended by signal 9$"),
        ({"gone": True}, "^worker 0 of n[12] ended in the middle of the run$"),
        ({"fault": "java.lang.OutOfMemoryError"}, "^an executor failed: java.lang.OutOfMemoryError$"),
        (
            {"mute": True},
            "^the topology has not drained, .*: executors have not reported since the end of the sources$",
        ),
        ({"lost": 1}, r"^the topology has not drained, .*: 1 of 9 rows from source\[0\] to sink$"),
        ({"stuck": 2}, r"^the topology has not drained, .*: 2 of 11 records of source\[0\] are not emitted$"),
    ],
)
def test_a_failure_of_the_engine_fails_the_run_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, object], message: str
) -> None:
    monkeypatch.setattr(conducting, "DRAIN_S", 0.5)
    monkeypatch.setattr(conducting, "CHECK_S", 0.1)
    with pytest.raises(RunError, match=message):
        outcome_of(tmp_path, **how)


def test_a_topology_that_has_not_drained_in_time_is_given_up_without_an_answer(tmp_path: Path) -> None:
    outcome, stages = outcome_of(tmp_path, drain_s=2.0, lost=1)
    assert not outcome.drained
    assert outcome.left.waiting["sink"] == outcome.left.rows == 1
    assert outcome.left.emitted_records == 9
    assert "collecting answers" not in stages


@pytest.mark.parametrize("selectivity", [1.0, 2.0, 0.5])
def test_a_late_source_emits_what_was_due_after_the_measured_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain_engine: type[PlainEngine], selectivity: float
) -> None:
    monkeypatch.setitem(PLACES, "sink[0]", Slot("n1", 0))
    monkeypatch.setattr(plain_engine, "record_s", 0.02)  # 0.6 s for all, which are due within 0.3 s
    count = write_due(Constant(tuples_per_s=100).schedule(), 0.3, tmp_path / "due")
    stream = {"selectivity": selectivity, "payload": 8, "keys": "1"}
    replay = {f"component.0.replay.0.{key}": value for key, value in stream.items()}
    outcome, _ = outcome_of(tmp_path, engine_type=plain_engine, settings={"due": "due", "seed": 1, **replay})
    assert outcome.drained
    assert outcome.left.emitted_records == outcome.left.due_records == count
    assert outcome.positions == {"source[0]": count}
    assert outcome.times.drained_ns - outcome.times.start_ns >= count * 20_000_000


def test_executors_that_do_not_open_fail_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conducting, "OPEN_S", 0.3)
    monkeypatch.setattr(ScriptedEngine, "_run_script", lambda self: asyncio.sleep(60))
    with pytest.raises(RunError, match=r"2 executors have not opened, the first one is source\[0\], after 0 s"):
        outcome_of(tmp_path)


def test_an_executor_that_opens_elsewhere_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLACES, "sink[0]", Slot("n1", 1))
    with pytest.raises(RunError, match=r"sink\[0\] runs on n2/0, not on n1/1"):
        outcome_of(tmp_path)


def test_records_are_due_at_the_times_of_the_schedule(tmp_path: Path) -> None:
    schedule = Poisson(1000.0).schedule(7)
    count = write_due(schedule, 0.5, tmp_path / "due")
    times = struct.unpack(f"<{count}q", (tmp_path / "due").read_bytes())
    assert count == schedule.due_count(500_000_000) > 300
    assert list(times) == [schedule.due_ns(record) for record in range(count)]


def test_a_rate_without_a_schedule_and_one_with_too_many_records_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rates 'replay' and 'max' are not possible"):
        write_due(None, 1.0, tmp_path / "due")
    with pytest.raises(
        InputError, match=f"20,000,001 records are due in 2 s, the most on another engine is {MOST_DUE:,}"
    ):
        write_due(PiecewiseConstant([(0.0, 1e7)]), 2.0, tmp_path / "due")


def test_limits_that_are_applied_too_late_fail_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conducting, "LATE_S", 0.1)
    monkeypatch.setattr(RunLimits, "apply", lambda self: asyncio.sleep(0.6))
    with pytest.raises(RunError, match=r"^limits of nodes were applied 0\.\d s after the measured interval had begun"):
        outcome_of(tmp_path)

"""The sampler survives and records faults of sensors, and reports its own cost."""

import os
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from agents.collected_traces import collect
from agents.protocol import Bye, Failed, Finish, Finished, Mark, Start
from agents.sensors import Host
from agents.sensors.sampler import Sampler
from agents.trace import AGENT, TraceWriter
from controller.host.process_identity import identify
from inventory.plugins import plugins

SENSORS = """
    import time
    from agents.sensors import Row, Sensor

    class Steady(Sensor):
        reads = 0
        def read(self, now_ns):
            self.reads += 1
            return [Row("event", now_ns, ("steady", "", "", float(self.reads)))]

    class EverySecond(Steady):
        def read(self, now_ns):
            rows = super().read(now_ns)
            if self.reads % 2 == 0:
                raise OSError("the bus is off \\udcff")
            return [Row("event", now_ns, ("every_second", "", "", 1.0))]

    class NoSuchTable(Sensor):
        def read(self, now_ns):
            return [Row("event", now_ns, ("half", "", "", 1.0)), Row("cpus", now_ns, ())]

    class WrongType(Sensor):
        def read(self, now_ns):
            return [Row("memory", now_ns, ("host", "n1", "total", "lots", None))]

    class NoRows(Sensor):
        def read(self, now_ns):
            return None

    class Absent(Sensor):
        def probe(self):
            return "no such chip"
        def read(self, now_ns):
            return [Row("event", now_ns, ("absent_read", "", "", 0.0))]

    class BadProbe(Absent):
        def probe(self):
            raise PermissionError("locked")

    class BadMaking(Absent):
        def __init__(self, host):
            raise RuntimeError("no, thanks")

    class BadClose(Steady):
        def close(self):
            raise RuntimeError("stuck")

    class Slow(Sensor):
        done = False
        def read(self, now_ns):
            if not self.done:
                self.done = True
                time.sleep(0.5)
            return []

    class Stuck(Sensor):
        def read(self, now_ns):
            time.sleep(3600)

    class Awaiting(Steady):
        def awaits(self, t_ns):
            return True

    class Busy(Sensor):
        def read(self, now_ns):
            end = time.thread_time() + 0.1
            while time.thread_time() < end:
                pass
            return []
"""
NAMES = {
    "steady": "Steady",
    "every-second": "EverySecond",
    "no-such-table": "NoSuchTable",
    "wrong-type": "WrongType",
    "no-rows": "NoRows",
    "absent": "Absent",
    "bad-probe": "BadProbe",
    "bad-making": "BadMaking",
    "bad-close": "BadClose",
    "slow": "Slow",
    "busy": "Busy",
    "stuck": "Stuck",
    "awaiting": "Awaiting",
    "no-module": None,
}


@pytest.fixture
def third_party(tmp_path: Path) -> Path:
    """A folder with an installed third-party package of sensors, for the path."""
    site = tmp_path / "site"
    information = site / "foreign_sensors-1.0.dist-info"
    information.mkdir(parents=True)
    (site / "foreign_sensors.py").write_text(textwrap.dedent(SENSORS))
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign-sensors\nVersion: 1.0\n")
    entries = [f"{n} = foreign_sensors:{c}" if c else f"{n} = foreign_nothing:Sensor" for n, c in NAMES.items()]
    (information / "entry_points.txt").write_text("\n".join(["[millrace.sensors]", *entries, ""]))
    return site


@pytest.fixture
def in_process(third_party: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(third_party))
    plugins.cache_clear()
    yield
    sys.modules.pop("foreign_sensors", None)
    plugins.cache_clear()


class Sampling:
    """A sampler of this process, and its traces."""

    def __init__(self, folder: Path, sensors: list[str], period_s: float) -> None:
        self.folder = folder
        self.faults: list[str] = []
        host = Host("n1", "127.0.0.2", True, os.getpid(), dict)
        self.sampler = Sampler(
            sensors, host, TraceWriter(folder, "r", "n1", AGENT), self.faults.append, period_s=period_s
        )
        self.sampler.start()

    def rows(self, table: str = "event") -> list[dict]:
        collect([self.folder], self.folder / "out")
        return pq.read_table(self.folder / "out" / f"{table}.parquet").to_pylist()

    def wait_for(self, condition: Callable[[Counter], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition(Counter(row["kind"] for row in self.rows())):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def stop(self) -> Counter:
        assert self.sampler.stop(60)
        return Counter(row["kind"] for row in self.rows())


@pytest.fixture
def sampling(tmp_path: Path, in_process: None) -> Iterator[Callable[..., Sampling]]:
    started = []

    def start(*sensors: str, period_s: float = 0.05) -> Sampling:
        started.append(Sampling(tmp_path / f"traces-{len(started)}", list(sensors), period_s))
        return started[-1]

    yield start
    for entry in started:
        assert entry.sampler.stop(60)


def test_sampling_goes_on_beside_sensors_that_fail(sampling):
    run = sampling("every-second", "no-such-table", "wrong-type", "no-rows", "steady")
    run.wait_for(lambda kinds: kinds["steady"] >= 6)
    kinds = run.stop()
    rows = run.rows()
    failed = Counter(row["subject"] for row in rows if row["kind"] == "sensor_failed")
    assert failed["every-second"] == kinds["steady"] // 2
    assert failed["no-such-table"] == failed["wrong-type"] == failed["no-rows"] == kinds["steady"]
    assert kinds["every_second"] == kinds["steady"] - failed["every-second"]
    # A sample with one row that does not fit is missing as a whole.
    assert kinds["half"] == 0
    details = {row["subject"]: row["detail"] for row in rows if row["kind"] == "sensor_failed"}
    assert "the bus is off" in details["every-second"]
    assert "did you mean 'cpu'" in details["no-such-table"]
    assert run.rows("memory") == []
    assert run.faults == []


def test_an_unusable_sensor_is_one_event_and_gives_no_rows(sampling):
    names = ["absent", "bad-probe", "bad-making", "no-module", "stedy", "steady"]
    run = sampling(*names)
    run.wait_for(lambda kinds: kinds["steady"] >= 3)
    run.stop()
    rows = run.rows()
    reasons = {row["subject"]: row["detail"] for row in rows if row["kind"] == "sensor_absent"}
    assert set(reasons) == set(names) - {"steady"}
    assert reasons["absent"] == "no such chip"
    assert "its probe failed: PermissionError: locked" in reasons["bad-probe"]
    assert "no, thanks" in reasons["bad-making"]
    assert "foreign_nothing" in reasons["no-module"]
    assert "did you mean 'steady'" in reasons["stedy"]
    assert all(row["value"] is None for row in rows if row["kind"] == "sensor_absent")
    assert "absent_read" not in {row["kind"] for row in rows}
    assert len([row for row in rows if row["kind"] == "sensor_absent"]) == len(reasons)


def test_a_sensor_that_cannot_be_closed_does_not_keep_the_files_open(sampling):
    run = sampling("bad-close")
    kinds = run.stop()
    assert kinds["steady"] >= 1
    assert run.faults == []


def test_a_mark_is_an_event_and_a_sample_at_once(sampling):
    run = sampling("steady", period_s=3600)
    run.wait_for(lambda kinds: kinds["steady"] == 1)
    run.sampler.mark("measure_start")
    run.wait_for(lambda kinds: kinds["steady"] == 2)
    kinds = run.stop()
    assert kinds["measure_start"] == 1
    assert kinds["steady"] == 3
    rows = run.rows()
    (marked,) = [row["t_ns"] for row in rows if row["kind"] == "measure_start"]
    times = [row["t_ns"] for row in rows if row["kind"] == "steady"]
    assert times == sorted(times)
    assert times[0] < marked <= times[1]


def test_passed_deadlines_are_skipped_and_counted_never_caught_up(sampling):
    run = sampling("slow", "steady", period_s=0.1)
    run.wait_for(lambda kinds: kinds["steady"] >= 5)
    run.stop()
    rows = run.rows()
    skipped = sum(row["value"] for row in rows if row["kind"] == "samples_skipped")
    times = [row["t_ns"] for row in rows if row["kind"] == "steady"]
    assert skipped >= 4
    # Every deadline of the first second or so was either met or counted; the last sample had none.
    periods = (times[-2] - times[0]) / 1e8
    assert len(times) - 2 + skipped == pytest.approx(periods, abs=2.0)


def test_the_samplers_cost_is_its_threads_cpu_time(sampling):
    run = sampling("busy", period_s=0.05)
    run.wait_for(lambda kinds: kinds["sampler_cost"] >= 3)
    run.stop()
    costs = [row["value"] for row in run.rows() if row["kind"] == "sampler_cost"][1:]  # the first one had imports to do
    assert all(0.1 <= cost < 0.3 for cost in costs)


def test_the_clock_is_mapped_to_utc_at_the_start(sampling):
    before = (time.monotonic_ns(), time.time_ns())
    run = sampling()
    run.wait_for(lambda kinds: kinds["sampler_cost"] >= 1)
    run.stop()
    after = (time.monotonic_ns(), time.time_ns())
    (row,) = run.rows("clock")
    assert before[0] <= row["t_ns"] <= after[0]
    assert before[1] <= row["utc_ns"] <= after[1]
    assert row["offset_ns"] is None


@pytest.mark.loopback
def test_third_party_sensors_run_in_an_agent_and_cannot_crash_it(start_agent, wordcount, third_party, tmp_path: Path):
    agent = start_agent(env={"PYTHONPATH": str(third_party)})
    agent.welcome()
    run = wordcount(agent)
    run.connect(run.start(sensors=["every-second", "bad-making", "steady", "cpu"]))
    run.go()
    agent.expect_progress(lambda p: p.emitted > 2000)
    run.drain()
    run.finish()
    kinds = Counter(run.traces(tmp_path / "traces")["event"]["kind"].to_pylist())
    assert kinds["steady"] >= 2
    assert kinds["sensor_failed"] == kinds["steady"] // 2
    assert kinds["sensor_absent"] == 1


@pytest.mark.loopback
def test_a_sensor_that_never_returns_is_reported_and_does_not_block_the_agent(start_agent, wordcount, third_party):
    code = (
        "import sys; from agents.__main__ import main; from agents.agent import agent;"
        "agent.LONGEST_WAIT_S = 1.0; sys.exit(main())"
    )
    agent = start_agent(command=(sys.executable, "-P", "-c", code), env={"PYTHONPATH": str(third_party)})
    agent.welcome()
    run = wordcount(agent)
    run.start(sensors=["stuck"])
    agent.send(Finish(epoch=1))
    assert "a sensor does not return" in agent.expect(Failed).reason
    agent.expect(Finished)
    agent.send(Bye())
    assert agent.wait() == 0


@pytest.mark.loopback
@pytest.mark.parametrize("sensor", ["stuck", "awaiting"])
def test_no_sensor_delays_the_exit_of_an_agent_without_a_controller(
    start_agent, wordcount, third_party, gone_within, sensor
):
    agent = start_agent(env={"PYTHONPATH": str(third_party)})
    agent.welcome()
    run = wordcount(agent)
    run.start(sensors=[sensor])
    if sensor == "awaiting":
        agent.send(Mark(epoch=1, kind="measure_end"))
        agent.send(Finish(epoch=1))
    agent.close_input()
    assert gone_within([identify(agent.pid)], 2.0)


def test_traces_that_cannot_be_written_fail_the_run_with_a_reason(start_agent, wordcount):
    # A limit on file sizes has the effect of a full disk.
    # Without `dont_write_bytecode`, Python would truncate the bytecode of modules, too, for all later processes.
    code = (
        "import resource, sys; sys.dont_write_bytecode = True;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000));"
        "from agents.__main__ import main; sys.exit(main())"
    )
    agent = start_agent(command=(sys.executable, "-P", "-c", code))
    agent.welcome()
    run = wordcount(agent)
    run.agents = []
    agent.send(Start(spec=run.spec(1, executors=(), workers=()), sensors=("cpu", "memory")))
    for number in range(100):
        agent.send(Mark(epoch=1, kind=f"mark {number}"))
    failed = agent.expect(Failed)
    assert "the trace files cannot be written" in failed.reason
    assert "File too large" in failed.reason
    agent.send(Finish(epoch=1))
    agent.expect(Finished)
    agent.send(Bye())
    assert agent.wait() == 0


@pytest.mark.loopback
def test_flushed_rows_are_readable_after_the_agent_was_killed(start_agent, wordcount, tmp_path: Path):
    agent = start_agent()
    agent.welcome()
    run = wordcount(agent)
    run.connect(run.start(sensors=["cpu", "memory", "network"]))
    run.go()
    flushed: dict[str, list] = {}

    def enough() -> bool:
        tables = run.traces(tmp_path / "before")
        flushed.update({name: table.to_pylist() for name, table in tables.items()})
        return len({row["t_ns"] for row in flushed["network"]}) >= 3 and len(flushed["throughput"]) > 0

    agent.wait_for(enough)
    agent.process.kill()
    agent.wait()
    after = {name: table.to_pylist() for name, table in run.traces(tmp_path / "after").items()}
    for name, rows in flushed.items():
        assert [row for row in rows if row not in after[name]] == []
    assert flushed["cpu"]
    assert flushed["memory"]

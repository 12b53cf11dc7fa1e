"""CPU settings of a run through a real agent in a file tree, and reasons that make a run suspect."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from fake_kernel import all_files
from trees.processors import CPU, acpi_shared

from agents.collected_traces import collect
from agents.power.reader import ROOT_VARIABLE
from agents.sensors.interference import BACKGROUND, CHANGED, THROTTLED
from agents.sensors.sampler import FAILED
from agents.trace import AGENT, CONTROLLER, TraceWriter
from campaign.results.suspect_runs import doubts_from_events
from campaign.runner.cpu_settings import DECLARED, RunCpus
from controller.nodes.agents import Agents, RunNode
from controller.nodes.transport import LoopbackTransport
from inventory.errors import RunError


def test_a_scheduler_fixes_the_clock_of_a_machine_and_declares_that_of_a_shared_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root").mkdir()
    root = acpi_shared().build(tmp_path / "root")
    before = all_files(root)
    monkeypatch.setenv(ROOT_VARIABLE, str(root))
    cpus = RunCpus({"n1": {"max_ghz": 2.0}}, {"n1": 9_000_000_000, "n2": 1_200_000_000}, ["n2"])
    impossible = RunCpus({"n1": {"governor": "fast"}}, {}, [])

    async def run() -> None:
        members = {"n1": RunNode("127.0.0.2", LoopbackTransport(tmp_path / "n1"))}
        async with Agents(members, "clocks", lambda _node, _pid: None) as agents:
            with pytest.raises(RunError, match="CPU settings are refused by n1: governor: fast"):
                await impossible.set(agents)
            assert all_files(root) == before
            await cpus.set(agents)
            assert all_files(root) != before
            await cpus.restore(agents, [])

    asyncio.run(run())
    assert all_files(root) == before
    assert cpus.nodes == ["n1"]
    rows = {(row.node, row.setting): row for row in cpus.rows}
    limit = rows["n1", "upper clock limit of policy0"]
    assert (limit.asked, limit.got, limit.ok) == ("9000000", "3000000", False)
    assert (rows["n2", "clock"].ok, rows["n2", "clock"].reason) == (None, DECLARED)
    # The scheduler's clock is set last, and the driver's limit is reported; a declared clock gives no doubt.
    assert len(cpus.doubts) == 4
    assert all(doubt.startswith("n1: ") and "asked for 9000000, got 3000000" in doubt for doubt in cpus.doubts)


def test_surviving_nodes_get_the_clocks_of_a_new_placement_or_those_of_the_agenda(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root").mkdir()
    root = acpi_shared().build(tmp_path / "root")
    before = all_files(root)
    monkeypatch.setenv(ROOT_VARIABLE, str(root))
    cpus = RunCpus({"n1": {"max_ghz": 2.4}}, {"n1": 1_200_000_000}, ["n3"])
    limits: list[tuple[str, str]] = []

    def record_limits() -> None:
        policy = root / CPU / "cpufreq/policy0"
        limits.append((_read(policy / "scaling_min_freq"), _read(policy / "scaling_max_freq")))

    async def run() -> None:
        members = {"n1": RunNode("127.0.0.2", LoopbackTransport(tmp_path / "n1"))}
        async with Agents(members, "clocks", lambda _node, _pid: None) as agents:
            await cpus.set(agents)
            record_limits()
            # n2 is lost, n3 shares its machine: neither gets a request.
            await cpus.set_clocks(agents, {"n1": 1_600_000_000, "n2": 800_000_000, "n3": 800_000_000}, {"n2"})
            record_limits()
            assert [row.asked for row in cpus.rows if row.node == "n3"] == ["800000"]
            await cpus.set_clocks(agents, {"n1": 1_600_000_000}, {"n2"})
            await cpus.set_clocks(agents, {}, {"n2"})
            record_limits()
            await cpus.restore(agents, ["n2"])

    asyncio.run(run())
    assert limits == [("1200000", "1200000"), ("1600000", "1600000"), (limits[2][0], "2400000")]
    assert int(limits[2][0]) < 1_200_000
    assert all_files(root) == before
    assert cpus.doubts == ["n1: its clock was changed during the run"]
    assert {row.asked for row in cpus.rows} == {"2400000"}


def test_clocks_of_an_online_scheduler_give_no_doubt_and_none_restores_that_of_the_agenda(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root").mkdir()
    root = acpi_shared().build(tmp_path / "root")
    before = all_files(root)
    monkeypatch.setenv(ROOT_VARIABLE, str(root))
    cpus = RunCpus({"n1": {"max_ghz": 2.4}}, {}, ["n2"])
    limits: list[str] = []

    async def run() -> None:
        members = {"n1": RunNode("127.0.0.2", LoopbackTransport(tmp_path / "n1"))}
        async with Agents(members, "clocks", lambda _node, _pid: None) as agents:
            await cpus.set(agents)
            for hz in (1_600_000_000, None, 1_200_000_000):
                assert await cpus.change_clocks(agents, {"n1": hz}) == {}
                limits.append(_read(root / CPU / "cpufreq/policy0/scaling_max_freq"))
            # A declared clock is not set, which is not an error; the clock of n1 stays.
            assert await cpus.change_clocks(agents, {"n2": 800_000_000}) == {"n2": DECLARED}
            limits.append(_read(root / CPU / "cpufreq/policy0/scaling_max_freq"))
            await cpus.restore(agents, [])

    asyncio.run(run())
    assert limits == ["1600000", "2400000", "1200000", "1200000"]
    assert all_files(root) == before
    assert cpus.doubts == []


def test_a_clamped_clock_and_a_dead_agent_are_reported_and_the_run_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root").mkdir()
    monkeypatch.setenv(ROOT_VARIABLE, str(acpi_shared().build(tmp_path / "root")))
    cpus = RunCpus({}, {}, [])
    found: list[Mapping[str, str]] = []

    async def run() -> None:
        members = {node: RunNode("127.0.0.2", LoopbackTransport(tmp_path / node)) for node in ("n1", "n2")}
        async with Agents(members, "clocks", lambda _node, _pid: None) as agents:
            await agents._channels["n2"].close()
            found.append(await cpus.change_clocks(agents, {"n1": 9_000_000_000, "n2": 1_200_000_000}))
            found.append(await cpus.change_clocks(agents, {"n1": 1_600_000_000}))
            await cpus.restore(agents, ["n2"])

    asyncio.run(run())
    clamped, again = found
    assert clamped.keys() == {"n1", "n2"}
    assert clamped["n1"] == "the driver made it '3000000'"
    assert "n2" in clamped["n2"]
    assert again == {}
    # A clamped clock gives a doubt only while it lasts; a clock that the scheduler changes gives none.
    assert [doubt.partition(":")[0] for doubt in cpus.doubts] == ["n2"]


def test_a_node_that_dies_while_its_clock_is_changed_is_recorded_and_the_run_continues(tmp_path: Path) -> None:
    cpus = RunCpus({}, {"n1": 1_200_000_000}, [])

    async def run() -> None:
        members = {"n1": RunNode("127.0.0.2", LoopbackTransport(tmp_path / "n1"))}
        async with Agents(members, "clocks", lambda _node, _pid: None) as agents:
            await agents._channels["n1"].close()
            await cpus.set_clocks(agents, {"n1": 1_600_000_000}, set())

    asyncio.run(run())
    assert [row.ok for row in cpus.rows] == [False]


def _read(path: Path) -> str:
    return path.read_text().strip()


def test_events_of_nodes_are_reported_once_per_node_and_kind(tmp_path: Path) -> None:
    for node in ("n1", "n2"):
        writer = TraceWriter(tmp_path / "parts", "r", node, AGENT)
        writer.add("event", 1, "measure_start", "", "", None)
        writer.add("event", 2, THROTTLED, "cpu3", "the core has throttled itself for heat 2 times", 2.0)
        writer.add("event", 3, THROTTLED, "cpu0", "the core has throttled itself for heat 1 times", 1.0)
        for at in range(5):
            writer.add("event", 4 + at, CHANGED, f"policy{at}/scaling_max_freq", "3 -> 2: not by this run", 1.0)
        writer.add("event", 9, BACKGROUND, "node", "8% of all cores worked for others", 0.08)
        writer.close()
    collect([tmp_path / "parts"], tmp_path / "traces")
    assert doubts_from_events(tmp_path / "traces", ["n1"]) == [
        "n1: thermal throttling, 3 times (cpu0, cpu3)",
        "n1: policy0/scaling_max_freq: 3 -> 2: not by this run",
        "n1: policy1/scaling_max_freq: 3 -> 2: not by this run",
        "n1: policy2/scaling_max_freq: 3 -> 2: not by this run",
        "n1: 2 more CPU settings were changed, not by this run",
        "n1: 8% of all cores worked for others",
    ]
    assert len(doubts_from_events(tmp_path / "traces", ["n1", "n2"])) == 12
    assert doubts_from_events(tmp_path / "traces", ["n3"]) == []


def test_events_of_this_host_are_reported_once(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "parts", "r", CONTROLLER, AGENT)
    writer.add("event", 9, BACKGROUND, "host", "40% of all cores worked for others", 0.4)
    writer.close()
    collect([tmp_path / "parts"], tmp_path / "traces")
    assert doubts_from_events(tmp_path / "traces", [CONTROLLER, "n1"]) == [
        "this host: 40% of all cores worked for others"
    ]


def test_a_sensor_that_failed_on_any_node_is_a_doubt(tmp_path: Path) -> None:
    for node, details in (("n1", []), ("n2", ["no such file", "no such process"])):
        writer = TraceWriter(tmp_path / "parts", "r", node, AGENT)
        writer.add("event", 1, "measure_start", "", "", None)
        for at, detail in enumerate(details):
            writer.add("event", 2 + at, FAILED, "cpu", detail, None)
        writer.close()
    collect([tmp_path / "parts"], tmp_path / "traces")
    assert doubts_from_events(tmp_path / "traces", [CONTROLLER, "n1"]) == [
        "n2: sensor cpu failed 2 times, last: no such process"
    ]

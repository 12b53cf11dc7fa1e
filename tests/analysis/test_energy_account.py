"""The energy of a run in run.json, for traces with results computed by hand."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.collected_traces import collect
from agents.protocol import IdleBaseline
from agents.trace import AGENT, TraceWriter
from analysis.measure.cpu_times import CpuTimes, curve_of_differences
from analysis.measure.energy_account import Idle, account
from analysis.measure.energy_attribution import divide, metered
from analysis.measure.run_metrics import read_table
from inventory.cluster import Machine, machines_of
from inventory.times import NS

SECONDS = 4
CPU_COLUMNS = ("scope", "name", "cores", "shared", "package", "package_by")
START, END = 100 * NS, 104 * NS
WATTS, IDLE_WATTS = 100.0, 40.0
IDLE = Idle(*[IdleBaseline(watts=IDLE_WATTS, domains={"package-0": IDLE_WATTS})] * 2)


def writer(folder: Path, node: str, slot: int) -> TraceWriter:
    made = TraceWriter(folder, "r", node, slot)
    for at, kind in ((START, "measure_start"), (END, "measure_end")):
        made.add("event", at, kind, "", None, None)
    return made


def meter(agent: TraceWriter, flags: dict[int, str] | None = None, shared: bool = False) -> None:
    """Write samples of 100 W, ten per second, from 1 s before to 1 s after the interval; `flags` by sample number."""
    for number in range(61):
        at = START - NS + number * NS // 10
        flag = "first" if number == 0 else (flags or {}).get(number, "")
        joules = None if flag == "reset" else WATTS * number / 10
        watts = None if flag else WATTS
        values = ("package-0", "package", "rapl", True, number, 2**32, joules, watts, 0.2, 1000, flag, shared)
        agent.add("power", at, *values)


def cpu(agent: TraceWriter, workers: dict[int, float]) -> None:
    """Write the CPU use of two busy cores, the agent, and workers: cores in use by slot."""
    for second in range(-1, SECONDS + 2):
        at = START + second * NS + NS // 3
        for core in ("0", "1"):
            agent.add("cpu", at, "core", core, 1.0, False, 0, "topology", None)
        agent.add("cpu", at, "agent", "n1", 0.01, False, None, None, None)
        for slot, cores in workers.items():
            agent.add("cpu", at, "worker", str(slot), cores, False, None, None, None)


def worker_traces(folder: Path, node: str = "n1") -> list[TraceWriter]:
    """Write the traces of two workers at 100 tuples/s: `src[0]` and `mid[0]` in slot 0, `snk[0]` in slot 1."""
    first, second = writer(folder, node, 0), writer(folder, node, 1)
    for number in range(SECONDS + 2):
        at = START + number * NS
        for made, name, role, busy_ms in (
            (first, "src[0]", "spout", 250),
            (first, "mid[0]", "bolt", 500),
            (second, "snk[0]", "sink", 250),
        ):
            made.add("throughput", at, name, name[:3], role, 100, 100, None, None, None, None)
            made.add("executor", at, name, busy_ms * 10**6, 0, 0, None)
        first.add("channel", at, "src[0]", "mid[0]", "d", "intra_worker", node, 100, 1, None, None)
        first.add("channel", at, "mid[0]", "snk[0]", "d", "inter_worker", node, 100, 1, 5000, None)
    return [first, second]


def accounted(
    folder: Path, *writers: TraceWriter, idle: Idle = IDLE, addresses: dict[str, str] | None = None
) -> dict[str, Any]:
    for made in writers:
        made.close()
    collect([folder], folder / "parquet")
    machines = machines_of(addresses or {"n1": "10.0.0.1"})
    found = account(folder / "parquet", "r", machines, {machine.metered: idle for machine in machines}, {})
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(found))
    return plain


def all_traces(folder: Path, **meter_flags: Any) -> list[TraceWriter]:
    agent = writer(folder, "n1", AGENT)
    meter(agent, **meter_flags)
    cpu(agent, {0: 1.0, 1: 0.5})
    return [agent, *worker_traces(folder)]


def test_energy_is_attributed_to_its_consumers(tmp_path: Path) -> None:
    found = accounted(tmp_path, *all_traces(tmp_path))
    assert found["joules"] == pytest.approx(400)
    assert 0 < found["bound_joules"] < 2
    assert found["idle_joules"] == pytest.approx(160)
    assert found["net_joules"] == pytest.approx(240)
    assert found["tuples"] == 400
    assert found["joules_per_tuple"] == pytest.approx(1.0)
    assert found["net_joules_per_tuple"] == pytest.approx(0.6)
    # 60 W for two CPU seconds per second: 30 J each.
    # Slot 0: src 7.5 J, mid 15 J, sending 7.5 J. Slot 1: snk 7.5 J, receiving 7.5 J.
    assert found["consumers"] == {
        "executors": pytest.approx(4 * 30),
        "transport": pytest.approx(4 * 15),
        "rest": pytest.approx(4 * 15),
        "idle": pytest.approx(160),
    }
    (machine,) = found["machines"]
    assert [(w["worker"], w["cpu_s"], w["joules"]) for w in machine["workers"]] == [
        (0, pytest.approx(4.0), pytest.approx(120)),
        (1, pytest.approx(2.0), pytest.approx(60)),
    ]
    assert {e["executor"]: e["joules"] for e in machine["executors"]} == pytest.approx(
        {"src[0]": 30, "mid[0]": 60, "snk[0]": 30}
    )
    assert found["hops"]["intra_worker"] == {
        "tuples": 400,
        "joules": pytest.approx(60),
        "joules_per_tuple": pytest.approx(0.15),
    }
    assert found["hops"]["inter_worker"]["joules"] == pytest.approx(90)
    assert found["hops"]["inter_worker"]["joules_per_tuple"] == pytest.approx(0.225)
    assert found["hops"]["inter_node"] == {"tuples": 0, "joules": None, "joules_per_tuple": None}
    rows = pyarrow.parquet.read_table(tmp_path / "parquet" / "energy.parquet").to_pylist()
    assert sum(row["joules"] for row in rows) == pytest.approx(400)
    assert {row["consumer"] for row in rows} == {"executor", "transport", "rest", "idle"}
    assert all((row["cpu_ns"] is None) == (row["consumer"] == "idle") for row in rows)


def test_a_node_of_namespaces_is_not_charged_for_other_load_of_its_host(tmp_path: Path) -> None:
    agent = writer(tmp_path, "n1", AGENT)
    meter(agent)
    for second in range(-1, SECONDS + 2):
        at = START + second * NS + NS // 3
        for core in ("0", "1"):
            agent.add("cpu", at, "core", core, 1.0, True, None, None, None)
        agent.add("cpu", at, "agent", "n1", 0.01, False, None, None, None)
        agent.add("cpu", at, "node", "n1", 0.4, False, None, None, None)
        agent.add("cpu", at, "worker", "0", 0.25, False, None, None, None)
        agent.add("cpu", at, "worker", "1", 0.05, False, None, None, None)
    found = accounted(tmp_path, agent, *worker_traces(tmp_path))
    # A quarter of the 60 W above idle belongs to other processes of the node than its workers.
    assert found["consumers"]["rest"] == pytest.approx(60 * SECONDS / 4)
    assert [worker["joules"] for worker in found["machines"][0]["workers"]] == pytest.approx([150, 30])


def test_nodes_that_are_processes_of_one_host_are_one_machine_with_any_addresses() -> None:
    addresses = {"n1": "10.77.0.1", "n2": "10.77.0.2", "n3": "127.0.0.2"}
    assert machines_of(addresses) == [Machine(("n3",), True), Machine(("n1",)), Machine(("n2",))]
    assert machines_of(addresses, {"n1", "n2"}) == [Machine(("n1", "n2", "n3"), True)]


@pytest.mark.parametrize(("flags", "said"), [({20: "reset"}, "reset"), ({20: "first"}, "reset")])
def test_with_a_missing_step_all_energy_is_missing_and_none_is_zero(
    tmp_path: Path, flags: dict[int, str], said: str
) -> None:
    """Cases: a reset counter, and a restarted agent."""
    found = accounted(tmp_path, *all_traces(tmp_path, flags=flags))
    for key in ("joules", "bound_joules", "net_joules", "joules_per_tuple", "hops", "consumers"):
        assert found[key] is None
    assert said in found["reason"]
    assert found["why_not_attributed"] == found["reason"]
    assert pyarrow.parquet.read_table(tmp_path / "parquet" / "energy.parquet").num_rows == 0


def test_without_an_idle_baseline_there_is_gross_energy_and_a_reason_for_no_net_energy(tmp_path: Path) -> None:
    idle = Idle(IdleBaseline(reason="nobody measured it"))
    found = accounted(tmp_path, *all_traces(tmp_path), idle=idle)
    assert found["joules_per_tuple"] == pytest.approx(1.0)
    assert found["net_joules"] is None
    assert found["hops"] is None
    assert "nobody measured it" in found["why_not_attributed"]


def test_without_cpu_times_energy_is_not_attributed(tmp_path: Path) -> None:
    agent = writer(tmp_path, "n1", AGENT)
    meter(agent)
    found = accounted(tmp_path, agent, *worker_traces(tmp_path))
    assert found["net_joules"] == pytest.approx(240)
    assert found["consumers"] is None
    assert "sensor cpu" in found["why_not_attributed"]


def test_a_node_without_a_meter_leaves_the_sum_missing_with_a_reason(tmp_path: Path) -> None:
    other = writer(tmp_path, "n2", AGENT)
    other.add("event", START - NS, "sensor_absent", "power", "rapl: it is locked", None)
    addresses = {"n1": "10.0.0.1", "n2": "10.0.0.2"}
    found = accounted(tmp_path, *all_traces(tmp_path), other, addresses=addresses)
    assert found["joules"] is None
    assert "n2: no energy source (rapl: it is locked)" in found["reason"]
    assert [machine["joules"] for machine in found["machines"]] == [pytest.approx(400), None]


def test_nodes_on_addresses_of_one_host_count_once_and_share_its_energy(tmp_path: Path) -> None:
    agents = [writer(tmp_path, node, AGENT) for node in ("n1", "n2")]
    for agent in agents:
        meter(agent, shared=True)
        cpu(agent, {0: 0.5, 1: 0.25})
    addresses = {"n1": "127.0.0.2", "n2": "127.0.0.3"}
    found = accounted(tmp_path, *agents, *worker_traces(tmp_path), *worker_traces(tmp_path, "n2"), addresses=addresses)
    assert found["joules"] == pytest.approx(400)
    (machine,) = found["machines"]
    assert machine["nodes"] == ["n1", "n2"]
    assert {(w["node"], w["worker"]): w["joules"] for w in machine["workers"]} == {
        ("n1", 0): pytest.approx(60),
        ("n1", 1): pytest.approx(30),
        ("n2", 0): pytest.approx(60),
        ("n2", 1): pytest.approx(30),
    }


def test_baselines_that_differ_are_flagged_and_their_mean_counts(tmp_path: Path) -> None:
    before, after = (IdleBaseline(watts=watts, domains={"package-0": watts}) for watts in (38.0, 42.0))
    found = accounted(tmp_path, *all_traces(tmp_path), idle=Idle(before, after))
    assert found["idle_joules"] == pytest.approx(160)
    assert found["flags"] == ["drift"]
    assert found["machines"][0]["idle"]["after"]["watts"] == 42.0


def test_a_baseline_that_is_known_on_one_side_only_counts_whole() -> None:
    known, unknown = IdleBaseline(watts=38.0, domains={"package-0": 38.0}), IdleBaseline(reason="the meter was lost")
    assert Idle(known, unknown).watts == Idle(unknown, known).watts == {"package-0": 38.0}


def test_a_machine_that_drew_less_than_when_idle_is_flagged_and_still_adds_up(tmp_path: Path) -> None:
    high = IdleBaseline(watts=130.0, domains={"package-0": 130.0})
    found = accounted(tmp_path, *all_traces(tmp_path), idle=Idle(high, high))
    assert found["flags"] == ["clamped"]
    assert found["net_joules"] == pytest.approx(-120)
    assert found["consumers"] == {"executors": 0, "transport": 0, "rest": 0, "idle": pytest.approx(400)}


def test_a_restarted_worker_is_not_charged_for_the_time_between_its_processes(tmp_path: Path) -> None:
    agent = writer(tmp_path, "n1", AGENT)
    for second in range(-1, SECONDS + 2):
        at = START + second * NS
        agent.add("cpu", at, "core", "0", 1.0, False, 0, "topology", None)
        agent.add("cpu", at, "agent", "n1", 0.01, False, None, None, None)
        # Killed after second 0; the next process is first sampled in second 2, which gives no row.
        if second not in (1, 2):
            agent.add("cpu", at, "worker", "0", 1.0, False, None, None, None)
    agent.close()
    collect([tmp_path], tmp_path / "parquet")
    tables = (read_table(tmp_path / "parquet", "cpu", *CPU_COLUMNS),)
    times = CpuTimes(Machine(("n1",)), *tables, read_table(tmp_path / "parquet", "executor", "executor", "busy_ns"))
    assert times.workers["n1", 0].between(START, END) == pytest.approx(2 * NS)


def two_packages(folder: Path, places: dict[int, tuple[int | None, str | None]], core_packages: Any = (0, 1)) -> Any:
    """Return the account of a machine with two packages: 100 W and 50 W, idle 40 W and 30 W.

    Each has one core, busy for 1 s and 0.5 s per second. Workers use half a core.
    """
    agent = writer(folder, "n1", AGENT)
    for package, watts in enumerate((100.0, 50.0)):
        for number in range(61):
            values = (
                f"package-{package}",
                "package",
                "rapl",
                True,
                number,
                2**32,
                watts * number / 10,
                watts,
                0.2,
                1000,
            )
            agent.add("power", START - NS + number * NS // 10, *values, "" if number else "first", False)
    for second in range(-1, SECONDS + 2):
        at = START + second * NS + NS // 3
        for core, package in enumerate(core_packages):
            by = None if package is None else "topology"
            agent.add("cpu", at, "core", str(core), 1.0 - core / 2, False, package, by, None)
        agent.add("cpu", at, "agent", "n1", 0.01, False, None, None, None)
        for slot, where in places.items():
            agent.add("cpu", at, "worker", str(slot), 0.5, False, *where, None)
    idle = IdleBaseline(watts=70.0, domains={"package-0": 40.0, "package-1": 30.0})
    return accounted(folder, agent, *worker_traces(folder), idle=Idle(idle, idle))["machines"][0]


def test_a_worker_gets_energy_of_the_package_that_it_ran_on(tmp_path: Path) -> None:
    machine = two_packages(tmp_path, {0: (0, "affinity"), 1: (1, "last_cpu")})
    # Half of package 0's 60 W above idle, all of package 1's 20 W.
    assert [worker["joules"] for worker in machine["workers"]] == pytest.approx([4 * 30, 4 * 20])
    assert machine["packages"] == {
        "known_by": {"affinity": pytest.approx(0.5), "last_cpu": pytest.approx(0.5), "together": 0.0},
        "reason": None,
    }
    rows = pyarrow.parquet.read_table(tmp_path / "parquet" / "energy.parquet").to_pylist()
    assert {row["domain"] for row in rows if row["worker"] == 0 and row["joules"]} == {"package-0"}
    # The CPU time of a consumer is repeated for every domain.
    rest = {(row["domain"], row["t_ns"]): row["cpu_ns"] for row in rows if row["consumer"] == "rest"}
    assert all(ns == rest["package-1", t_ns] for (domain, t_ns), ns in rest.items() if domain == "package-0")
    for domain, watts in (("package-0", 100.0), ("package-1", 50.0)):
        assert sum(row["joules"] for row in rows if row["domain"] == domain) == pytest.approx(4 * watts)


def test_a_worker_on_unknown_packages_gets_what_other_workers_leave_of_all_packages(tmp_path: Path) -> None:
    machine = two_packages(tmp_path, {0: (0, "affinity"), 1: (None, None)})
    # Half a CPU second of each package remains.
    assert [worker["joules"] for worker in machine["workers"]] == pytest.approx([4 * 30, 4 * (60 / 4 + 20 / 2)])
    assert machine["packages"]["known_by"]["together"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("core_packages", "reason"),
    [((0, None), "does not report the package"), ((0, 0), "no core of package 1")],
)
def test_if_packages_of_cores_are_unknown_all_packages_are_divided_together(
    core_packages: Any, reason: str, tmp_path: Path
) -> None:
    machine = two_packages(tmp_path, {0: (0, "affinity"), 1: (0, "affinity")}, core_packages)
    assert [worker["joules"] for worker in machine["workers"]] == pytest.approx([4 * 80 / 3] * 2)
    assert machine["packages"]["known_by"] == {"together": 1.0}
    assert reason in machine["packages"]["reason"]


amounts = st.lists(st.floats(0, 50), min_size=50, max_size=50)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(amounts, st.floats(0, 200), st.lists(st.floats(0, 2), min_size=6, max_size=6))
def test_the_rows_of_a_domain_add_up_to_its_energy(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[float], idle_watts: float, cores: list[float]
) -> None:
    folder = tmp_path_factory.mktemp("traces")
    agent = writer(folder, "n1", AGENT)
    total = 0.0
    for number in range(51):
        flag = "" if number else "first"
        values = ("package-0", "package", "rapl", True, number, 2**32, total, None, 0.2, 1000, flag, False)
        agent.add("power", START - NS // 2 + number * NS // 10, *values)
        total += drawn[number] if number < 50 else 0.0
    for second, used in enumerate(cores):
        at = START + second * NS - NS // 7
        agent.add("cpu", at, "core", "0", 1.0, False, 0, "topology", None)
        agent.add("cpu", at, "agent", "n1", 0.01, False, None, None, None)
        agent.add("cpu", at, "worker", "0", used, False, None, None, None)
    writers = [agent, *worker_traces(folder)]
    for made in writers:
        made.close()
    collect([folder], folder / "parquet")
    domains = metered(
        read_table(
            folder / "parquet",
            "power",
            *("domain", "role", "source", "in_total", "raw", "joules", "watts", "bound_joules", "t_half_ns", "flags"),
        ),
        "n1",
        START,
        END,
    )
    times = CpuTimes(
        Machine(("n1",)),
        read_table(folder / "parquet", "cpu", *CPU_COLUMNS),
        read_table(folder / "parquet", "executor", "executor", "busy_ns"),
    )
    parts = list(divide(Machine(("n1",)), domains, {"package-0": idle_watts}, times, START, END))
    assert min(part.joules for part in parts) >= 0
    assert sum(part.joules for part in parts) == pytest.approx(domains[0].energy.joules or 0.0, rel=1e-3, abs=0.2)


def test_a_curve_is_constant_where_nothing_is_known() -> None:
    curve = curve_of_differences([(10, 8, 4.0), (20, 16, 8.0)])
    assert [curve.at(t) for t in (0, 8, 9, 10, 14, 18, 20, 30)] == [0, 0, 2, 4, 4, 8, 12, 12]

"""Campaigns with `engine: storm` on this host: placement, measurement, kills and clean-up."""

import json
import re
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet
import pytest
from package_install import skipping_without_jars
from trees import meters

from agents.power.reader import ROOT_VARIABLE
from engines.selection import install_engine

pytestmark = [pytest.mark.storm, pytest.mark.loopback]

LINES = [
    "to be or not to be",
    "",
    "that is\tthe\u00a0question",
    "to die \u2003 to sleep",
    "caf\u00e9 \U0001f600 caf\u00e9",
]
"""White space of several kinds, and characters of up to four bytes."""


@pytest.fixture(scope="module", autouse=True)
def _storm() -> None:
    with skipping_without_jars():
        install_engine("storm", print)


def workload(workspace: Any, **changes: Any) -> dict[str, Any]:
    (workspace.folder / "text.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    params = {"text": "text.txt", "workers": 2, "ackers": 0, "parallelism": {"spout": 2, "split": 3, "count": 2}}
    return {
        "name": "wordcount",
        "params": {**params, **changes},
        "rate": {"kind": "poisson", "tuples_per_s": 300},
    }


def total(folder: Path, table: str, *key: str, column: str) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for row in pyarrow.parquet.read_table(folder / "traces" / f"{table}.parquet").to_pylist():
        found[tuple(row[name] for name in key)] += row[column] or 0
    return found


def interfaces(pid: int) -> set[str]:
    """Return the network interfaces that a process can use."""
    lines = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
    return {line.partition(":")[0].strip() for line in lines}


def test_storm_follows_the_placement_counts_every_word_and_leaves_nothing(workspace: Any) -> None:
    sizes = {"text": "text.txt", "workers": 2, "ackers": 0, "parallelism": {"word": 2, "exclaim1": 2, "exclaim2": 2}}
    exclaim = {"name": "exclamation", "params": sizes, "rate": {"kind": "constant", "tuples_per_s": 300}}
    agenda = workspace.agenda(
        engine="storm",
        workloads=[workload(workspace), exclaim],
        schedulers=["even", "local-search"],
        duration_s=2,
        **{"except": [{"workload": "exclamation", "scheduler": "local-search"}]},
    )
    process = workspace.start("run", agenda)
    workspace.wait_for_stage(1, "measuring")
    storm = [each.pid for each in workspace.processes() if psutil.Process(each.pid).name() == "java"]
    assert len(storm) >= 5  # Nimbus, two Supervisors, two workers
    assert all(interfaces(pid) == {"lo"} for pid in storm)
    host_network = Path("/proc/self/ns/net").stat().st_ino
    assert all(Path(f"/proc/{pid}/ns/net").stat().st_ino != host_network for pid in storm)
    outcome = workspace.wait_for_end(process)
    assert outcome.status == 0, outcome
    nodes = {}
    for name, run in workspace.results().items():
        folder = workspace.campaign / "runs" / name
        assert run["verification"]["status"] == "passed", run["verification"]
        if run["workload"] == "wordcount":
            assert run["verification"]["checked"] == len({word for line in LINES for word in line.split()})
        assert run["engine"]["name"] == "storm"
        assert re.fullmatch(r"\d+\.\d+\.\d+", run["engine"]["release"])
        placed = {
            each["executor"]: f"{each['node']}/{each['slot']}"
            for each in run["placement"]["topologies"][run["workload"]]["assignments"]
        }
        assert run["engine"]["places"] == placed
        nodes[run["scheduler"]] = {place.partition("/")[0] for place in placed.values()}
        measured = run["measured"]
        assert measured["latency_ms"]["samples"] > 0
        assert measured["source_tuples_per_s"] > 0
        emitted = total(folder, "throughput", "executor", column="emitted")
        processed = total(folder, "throughput", "executor", column="processed")
        arrived = total(folder, "channel", "target", column="tuples")
        assert {name: count for name, count in processed.items() if count} == dict(arrived)
        sent = Counter[str]()
        for (source, _), count in total(folder, "channel", "source", "target", column="tuples").items():
            sent[source] += count
        assert dict(sent) == {name: count for (name,), count in emitted.items() if count}
        for row in pyarrow.parquet.read_table(folder / "traces" / "channel.parquet").to_pylist():
            source, target = placed[row["source"]], placed[row["target"]]
            same_node = source.partition("/")[0] == target.partition("/")[0]
            assert row["hop"] == ("intra_worker" if source == target else "inter_worker" if same_node else "inter_node")
        table, column, sink = (
            ("counts", "count", "count") if run["workload"] == "wordcount" else ("exclaimed", "tuples", "exclaim2")
        )
        answer = pyarrow.parquet.read_table(folder / "answer" / table)[column].to_pylist()
        assert sum(answer) == sum(count for (name,), count in processed.items() if name.startswith(sink))
        cpu = total(folder, "cpu", "node", "scope", column="cores")
        assert all(cpu[node, "worker"] > 0 for node in nodes[run["scheduler"]])
        assert list((folder / "logs").glob("n*-worker.log"))
    assert len(nodes["even"]) == 2
    assert len(nodes["local-search"]) == 1
    traffic = workspace.run("traffic", str(workspace.campaign), "--run", "001-wordcount-even-r1")
    assert json.loads(traffic.out)["edges"], traffic
    assert not workspace.processes()
    assert not list(workspace.temporary.iterdir())


KILLED = {
    "Nimbus": ("millrace.storm.Master", "Nimbus was killed by SIGKILL"),
    "worker": ("daemon.worker.Worker", "worker 0 of n1 ended in the middle of the run"),
}
"""A killed Supervisor is in `test_ssh_engines.py`."""


def kill_program(workspace: Any, program: str) -> None:
    """Send SIGKILL to a process of Storm on node n1."""
    for identity in workspace.processes():
        command = psutil.Process(identity.pid).cmdline()
        here = program == "Nimbus" or any("n1" in re.split(r"[=/:]", each) for each in command)
        is_log_writer = any("LogWriter" in each for each in command)
        if command[0].endswith("java") and KILLED[program][0] in " ".join(command) and here and not is_log_writer:
            psutil.Process(identity.pid).send_signal(signal.SIGKILL)
            return
    pytest.fail(f"no {program} is running")


def executors_of(run: dict[str, Any]) -> set[str]:
    """Return the executors of the placement, ackers included."""
    assigned = run["placement"]["topologies"]["wordcount"]["assignments"]
    return {each["executor"] for each in assigned}


def test_a_killed_process_fails_its_run_and_the_campaign_goes_on(workspace: Any) -> None:
    agenda = workspace.agenda(
        engine="storm",
        acks=True,
        workloads=[workload(workspace, ackers=1)],
        schedulers=["even"],
        repetitions=3,
        duration_s=6,
        warmup_s=1,
    )
    process = workspace.start("run", agenda)
    for number, program in enumerate(KILLED, 1):
        workspace.wait_for_stage(number, "measuring")
        kill_program(workspace, program)
    outcome = workspace.wait_for_end(process)
    assert outcome.status == 1, outcome
    *failed, last = workspace.results().values()
    for run, (_, reason) in zip(failed, KILLED.values(), strict=True):
        assert run["status"] == "failed"
        assert reason in run["reason"]
    assert last["status"] == "ok", last["reason"]
    assert last["verification"]["status"] == "passed"
    assert last["engine"]["places"].keys() == executors_of(last) - {"__acker[0]"}
    assert not workspace.processes()
    assert not list(workspace.temporary.iterdir())


def test_a_load_document_of_a_run_is_replayed_with_its_rows_bytes_and_cpu(workspace: Any) -> None:
    declared = {
        "source": "declared",
        "operation_ns": 1.0,
        "topology": {
            "id": "chain",
            "workers": 2,
            "components": [
                {"id": "source", "kind": "spout", "parallelism": 1},
                {"id": "work", "kind": "bolt", "parallelism": 2, "inputs": [{"from": "source"}]},
                {
                    "id": "end",
                    "kind": "bolt",
                    "parallelism": 2,
                    "inputs": [{"from": "work", "grouping": "fields", "fields": ["key"]}],
                },
            ],
        },
        "components": {
            "source": {"operations": 0, "outputs": {"default": {"selectivity": 1, "bytes": 100}}},
            "work": {
                "operations": 500_000,
                "outputs": {"default": {"selectivity": 2.5, "bytes": 50, "keys": [3, 1]}},
            },
            "end": {"operations": 1_000},
        },
    }
    (workspace.folder / "load.json").write_text(json.dumps(declared))
    entry = {
        "name": "replay",
        "params": {"load": "load.json"},
        "rate": {"kind": "constant", "tuples_per_s": 100},
    }
    outcome = workspace.run(
        "run", workspace.agenda(engine="storm", workloads=[entry], schedulers=["even"], duration_s=4)
    )
    assert outcome.status == 0, outcome
    made = workspace.run("load", str(workspace.campaign), "-o", "found.json")
    assert made.status == 0, made
    found = json.loads((workspace.folder / "found.json").read_text())
    work = found["components"]["work"]
    assert work["outputs"]["default"]["selectivity"] == pytest.approx(2.5, rel=0.05)
    assert work["outputs"]["default"]["keys"] == [pytest.approx(0.75, abs=0.06), pytest.approx(0.25, abs=0.06)] or (
        work["outputs"]["default"]["keys"] == [pytest.approx(0.25, abs=0.06), pytest.approx(0.75, abs=0.06)]
    )
    assert work["rows_per_s"] == pytest.approx(100, rel=0.1)
    # Storm's own work, waiting included, is added to that of the document.
    assert 400_000 < work["operations"] < 5_000_000


def test_a_run_whose_sources_are_late_is_complete_and_has_modelled_energy(
    workspace: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = {
        "source": "declared",
        "operation_ns": 1.0,
        "topology": {
            "id": "chain",
            "workers": 2,
            "components": [
                {"id": "source", "kind": "spout"},
                {"id": "end", "kind": "bolt", "inputs": [{"from": "source"}]},
            ],
        },
        "components": {
            # Some 0.25 s per record, of which ten are due per second.
            "source": {"operations": 150_000_000, "outputs": {"default": {"selectivity": 2, "bytes": 100}}},
            "end": {"operations": 0},
        },
    }
    (workspace.folder / "load.json").write_text(json.dumps(declared))
    model = {"etc/millrace/power.yaml": "model: {p_s: 6, p_d: 9, kappa: 2.4, mape: 0.05}", "sys/devices/empty": ""}
    root = meters.plant(tmp_path / "root", model)
    (root / "proc").symlink_to("/proc")
    monkeypatch.setenv(ROOT_VARIABLE, str(root))
    rate = {"kind": "constant", "tuples_per_s": 10}
    entry = {"name": "replay", "params": {"load": "load.json"}, "rate": rate}
    agenda = workspace.agenda(
        engine="storm", workloads=[entry], schedulers=["even"], warmup_s=1, duration_s=2, drain_s=300
    )
    outcome = workspace.run("run", agenda)
    assert outcome.status == 0, outcome
    (run,) = workspace.results().values()
    assert run["status"] == "ok", run["reason"]
    assert run["times"]["drained_ns"] - run["times"]["stopped_ns"] > 10**9
    (folder,) = (workspace.campaign / "runs").iterdir()
    assert total(folder, "throughput", "role", column="emitted")["spout",] == 31
    assert total(folder, "throughput", "role", column="processed")["sink",] == 2 * 31
    energy = run["measured"]["energy"]
    assert (energy["sources"], energy["modelled"]) == (["model"], True)
    events = pyarrow.parquet.read_table(folder / "traces" / "event.parquet").to_pylist()
    marks = {row["kind"]: row["t_ns"] for row in events if row["node"] == "n1"}
    seconds = (marks["measure_end"] - marks["measure_start"]) / 1e9
    assert 6 - energy["bound_joules"] < energy["joules"] / seconds < 15 + energy["bound_joules"]
    assert energy["idle_joules"] is None
    (machine,) = energy["machines"]
    assert machine["idle"]["before"]["reason"] == "its energy follows a model, and nothing is measured"


def test_ctrl_c_twice_and_a_killed_controller_leave_no_process_of_storm(workspace: Any) -> None:
    agenda = workspace.agenda(engine="storm", workloads=[workload(workspace)], schedulers=["even"])
    for number, times in ((signal.SIGINT, 2), (signal.SIGKILL, 1)):
        process = workspace.start("run", agenda)
        workspace.wait_for(lambda: len(workspace.programs("java")) >= 3, "Storm")
        for _ in range(times):
            process.send_signal(number)
            time.sleep(1)  # two pending signals are delivered as one
        outcome = workspace.wait_for_end(process)
        assert outcome.status == (130 if number == signal.SIGINT else -number), outcome
        workspace.wait_until_no_process()


WITHOUT_STORM = """\
from engines import selection
from millrace.__main__ import main

selection.installed = lambda name: None
main()
"""


def test_without_storm_a_campaign_is_refused_before_it_starts(workspace: Any) -> None:
    outcome = workspace.run(
        "run", workspace.agenda(engine="storm", workloads=[workload(workspace)]), program=WITHOUT_STORM
    )
    assert outcome.status == 3, outcome
    assert "Apache Storm is not installed; millrace engine storm installs it" in outcome.err
    assert not (workspace.folder / "results").exists()

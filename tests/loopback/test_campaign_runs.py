"""A campaign of real processes on this host, from the agenda to verified, complete results."""

import json
import re
from collections import Counter
from hashlib import sha256
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from agents.collected_traces import TABLES

pytestmark = pytest.mark.loopback


@pytest.mark.slow
def test_two_workloads_race_under_two_schedulers_on_five_nodes(workspace: Any) -> None:
    workloads = [
        {"name": "wordcount", "rate": {"kind": "constant", "tuples_per_s": 300}},
        {
            "name": "exclamation",
            "label": "loud",
            "params": {"workers": 2},
            "rate": {"kind": "steps", "steps": [[0, 100], [1, 200]]},
        },
    ]
    outcome = workspace.run("run", workspace.agenda(inventory="loopback", order="interleaved", workloads=workloads))
    assert outcome.status == 0, outcome
    assert f"results: results/short/{workspace.campaign.name}" in outcome.out
    record = json.loads((workspace.campaign / "campaign.json").read_text())
    assert {"agenda", "version", "git_commit", "host", "seeds"} <= record.keys()
    results = workspace.results()
    assert set(record["seeds"]["runs"]) == set(results)
    assert Counter((r["label"], r["scheduler"], r["status"]) for r in results.values()) == Counter(
        (label, scheduler, "ok") for label in ("wordcount", "loud") for scheduler in ("even", "top-storm")
    )
    for name, run in results.items():
        assert run["verification"]["status"] == "passed"
        assert run["verification"]["checked"] > 0
        assert run["attempt"] == 1
        assert run["tier"] == 1
        assert run["not_given"] == (["traffic"] if run["scheduler"] == "top-storm" else [])
        times = run["times"]
        assert times["source_start_ns"] < times["measure_start_ns"] < times["measure_end_ns"] <= times["stopped_ns"]
        assert run["measured"]["source_tuples_per_s"] > 0
        assert run["measured"]["latency_ms"]["samples"] > 0
        assert "\nTag=" in (workspace.campaign / "runs" / name / "latency.hlog").read_text()
        placed = run["placement"]["topologies"]
        assert all(entry["status"] == "placed" for entry in placed.values())
        nodes = {entry["node"] for topology in placed.values() for entry in topology["assignments"]}
        assert (run["measured"]["hops"]["inter_node"] > 0) == (len(nodes) > 1)
        traces = workspace.campaign / "runs" / name / "traces"
        assert {path.stem for path in traces.iterdir()} == set(TABLES)
        cpu = pyarrow.parquet.read_table(traces / "cpu.parquet")
        assert set(cpu["node"].to_pylist()) == {"n1", "n2", "n3", "n4", "n5"}
    assert not list(workspace.campaign.glob("runs/*.partial"))
    assert not workspace.processes()
    assert not list(workspace.temporary.iterdir())


def test_a_quiet_run_counts_exactly_the_lines_that_were_emitted_and_prints_only_results(workspace: Any) -> None:
    lines = ["to be or not to be", "that is the question", "", "to die to sleep"]
    (workspace.folder / "text.txt").write_text("\n".join(lines) + "\n")
    params = {"text": "text.txt", "workers": 2, "ackers": 1, "parallelism": {"spout": 2, "split": 2, "count": 3}}
    workload = {"name": "wordcount", "params": params, "rate": {"kind": "constant", "tuples_per_s": 500}}
    outcome = workspace.run("--quiet", "run", workspace.agenda(workloads=[workload], schedulers=["even"]))
    assert outcome.status == 0, outcome
    assert outcome.err == ""
    assert f"results: results/short/{workspace.campaign.name}" in outcome.out
    ((name, run),) = workspace.results().items()
    assert run["profiles"] is None
    folder = workspace.campaign / "runs" / name
    rows = pyarrow.parquet.read_table(folder / "answer" / "counts").to_pylist()
    emitted = _emitted(folder)
    # Executor i of two emits the records i, i + 2, ..., so the numbers of records determine the answer.
    count: Counter[str] = Counter()
    for index, number in enumerate(emitted):
        records = islice(cycle(chain(lines, lines)), index, index + 2 * number, 2)
        count.update(word for line in records for word in line.split())
    assert {row["word"]: row["count"] for row in rows} == dict(count)
    assert run["verification"] == {
        "status": "passed",
        "checked": len(count),
        "message": "",
        "quarantined": {"malformed": 0, "outlier": 0, "out_of_order": 0},
    }


def _emitted(folder: Path) -> list[int]:
    rows = pyarrow.parquet.read_table(folder / "traces" / "throughput.parquet").to_pylist()
    totals: Counter[str] = Counter()
    for row in rows:
        if row["role"] == "spout":
            totals[row["executor"]] += row["emitted"]
    return [totals[executor] for executor in sorted(totals)]


@pytest.mark.long
def test_only_runs_a_part_and_resume_requires_the_same_agenda(workspace: Any) -> None:
    agenda = workspace.agenda()
    assert workspace.run("run", agenda, "--only", "scheduler=top-storm").status == 0
    (done,) = workspace.results()
    assert done == "002-wordcount-top-storm-r1"
    outcome = workspace.run("run", workspace.agenda(seed=99), "--resume", "results/short/latest")
    assert outcome.status == 2
    assert "another seed" in outcome.err
    agenda = workspace.agenda()
    before = (workspace.campaign / "runs" / done / "run.json").stat().st_mtime_ns
    outcome = workspace.run("run", agenda, "--resume", "results/short/latest")
    assert outcome.status == 0, outcome
    assert list(workspace.results()) == ["001-wordcount-even-r1", "002-wordcount-top-storm-r1"]
    assert (workspace.campaign / "runs" / done / "run.json").stat().st_mtime_ns == before
    assert len(list((workspace.folder / "results" / "short").iterdir())) == 2  # the folder and `latest`
    assert len(json.loads((workspace.campaign / "campaign.json").read_text())["resumed"]) == 1


@pytest.mark.long
def test_a_resumed_campaign_keeps_the_processor_calibration_of_its_start(workspace: Any) -> None:
    workload = {"name": "linear", "rate": {"kind": "constant", "tuples_per_s": 50}}
    agenda = workspace.agenda(workloads=[workload], schedulers=["even", "local-search"], duration_s=0.5)
    assert workspace.run("run", agenda, "--only", "scheduler=even", "--no-report").status == 0
    (calibration,) = (workspace.campaign / "inputs").glob("*/*")
    outcome = workspace.run("run", "--resume", "results/short/latest", "--no-report")
    assert outcome.status == 0, outcome
    first, second = workspace.results().values()
    assert first["inputs"] == second["inputs"]
    assert [entry["sha256"] for entry in first["inputs"]] == [sha256(calibration.read_bytes()).hexdigest()]


@pytest.mark.long
def test_repetitions_are_added_after_the_existing_runs(workspace: Any) -> None:
    agenda = workspace.agenda(schedulers=["even"], duration_s=0.5)
    done = workspace.run("run", agenda, "--repetitions", "2", "--no-report", program=workspace.whole)
    assert done.status == 0, done
    assert "report" not in done.out
    assert not (workspace.campaign / "report").exists()
    assert workspace.live()["stage"] == "finished"
    names = ["001-wordcount-even-r1", "002-wordcount-even-r2"]
    files = [workspace.campaign / "runs" / name / "run.json" for name in names]
    before = [path.stat().st_mtime_ns for path in files]
    refused = workspace.run("run", "--resume", "results/short/latest", "--repetitions", "1")
    assert refused.status == 2
    assert "--repetitions 1: results/short/latest has 2 repetitions already" in refused.err
    added = workspace.run("run", agenda, "--resume", "results/short/latest", "--repetitions", "3")
    assert added.status == 0, added
    results = workspace.results()
    assert list(results) == [*names, "003-wordcount-even-r3"]
    assert [path.stat().st_mtime_ns for path in files] == before
    record = json.loads((workspace.campaign / "campaign.json").read_text())
    assert record["agenda"]["repetitions"] == 3
    assert record["seeds"]["runs"] == {name: run["seed"] for name, run in results.items()}
    assert len(set(record["seeds"]["runs"].values())) == 3


@pytest.mark.long
def test_a_run_at_rate_max_is_verified_and_never_called_saturated(workspace: Any) -> None:
    workload = {"name": "exclamation", "params": {"workers": 2}, "rate": {"kind": "max"}}
    outcome = workspace.run("run", workspace.agenda(workloads=[workload], schedulers=["even"], duration_s=1))
    assert outcome.status == 0, outcome
    (run,) = workspace.results().values()
    assert run["verification"]["status"] == "passed"
    assert run["measured"]["saturated"] is None


def test_an_input_that_ends_in_the_warm_up_is_verified_and_has_no_figures(workspace: Any) -> None:
    readings = "".join(f"{second},{1377986401 + second},{second}.5,1,0,0,0\n" for second in range(200))
    (workspace.folder / "plugs.csv").write_text(readings)
    params = {"input": "plugs.csv", "slices": [60], "workers": 2, "parallelism": dict.fromkeys(("source", "house"), 2)}
    workload = {"name": "smart-home", "params": params, "rate": {"kind": "max"}}
    outcome = workspace.run("run", workspace.agenda(workloads=[workload], schedulers=["even"], warmup_s=3600))
    assert outcome.status == 0, outcome
    assert "nothing measured: the input ended in the warm-up" in outcome.err
    (run,) = workspace.results().values()
    assert run["verification"]["status"] == "passed"
    measured = run["measured"]
    rates = [measured[f"{of}_tuples_per_s"] for of in ("source", "throughput", "sink")]
    assert [*rates, *measured["hops"].values(), measured["latency_ms"]["p50"]] == [None] * 7
    assert run["times"]["measure_start_ns"] == run["times"]["measure_end_ns"]


def test_sources_that_cannot_emit_what_is_due_leave_a_run_incomplete(workspace: Any) -> None:
    params = {"workers": 1, "ackers": 0, "parallelism": {"spout": 1, "split": 1, "count": 1}}
    workload = {"name": "wordcount", "params": params, "rate": {"kind": "constant", "tuples_per_s": 50_000_000}}
    outcome = workspace.run("run", workspace.agenda(workloads=[workload], schedulers=["even"], drain_s=2))
    assert outcome.status == 1, outcome
    (run,) = workspace.results().values()
    assert (run["status"], run["measured"]["saturated"]) == ("incomplete", True)
    emitted, due = run["left"]["emitted_records"], run["left"]["due_records"]
    assert 0 < emitted < 0.99 * due
    assert run["reason"].endswith(f"sources emitted {emitted:,} of {due:,} records that were due")


def test_a_dry_run_shows_runs_and_placements_and_starts_and_writes_nothing(workspace: Any) -> None:
    online = {"name": "p-scheduler", "label": "watched", "online": {}}
    schedulers = ["even", "t-storm", online]
    outcome = workspace.call("run", workspace.agenda(schedulers=schedulers, duration_s=80), "--dry-run")
    assert outcome.status == 0, outcome
    assert "\nwordcount by even: " in outcome.out
    assert "\nwordcount by t-storm (not given: traffic, load): " in outcome.out
    asked = "online: asked first at 63 s, then every 60 s: 1 time, and at changes"
    assert f"\nwordcount by watched ({asked}; placed by even): " in outcome.out
    assert "001-wordcount-even-r1" in outcome.out
    assert "n1 slot 0: spout[0]" in outcome.out
    assert not (workspace.folder / "results").exists()
    assert not list(workspace.state.iterdir())
    assert not list(workspace.temporary.iterdir())


def test_without_spark_the_results_are_complete_and_the_message_says_how_to_go_on(workspace: Any) -> None:
    outcome = workspace.run("run", workspace.agenda(schedulers=["even"]), program=workspace.without_spark)
    assert outcome.status == 3, outcome
    assert "Spark is not installed" in outcome.err or "no Java" in outcome.err
    folder = f"results/short/{workspace.campaign.name}"
    assert f"The results are complete in {folder}; later: millrace report {folder}" in outcome.err
    assert [run["status"] for run in workspace.results().values()] == ["ok"]


@pytest.mark.long
@pytest.mark.profiler
def test_profiles_are_stored_with_the_run_and_listed_in_run_json(workspace: Any) -> None:
    workload = {"name": "exclamation", "params": {"workers": 2}, "rate": {"kind": "max"}}
    outcome = workspace.run(
        "run", workspace.agenda(workloads=[workload], schedulers=["even"], duration_s=1), "--profile"
    )
    assert outcome.status == 0, outcome
    ((name, run),) = workspace.results().items()
    assert {(entry["node"], entry["reason"]) for entry in run["profiles"]} == {("n1", None), ("n2", None)}
    for entry in run["profiles"]:
        assert entry["file"] == f"profiles/{entry['node']}-{entry['slot']}.folded"
        lines = (workspace.campaign / "runs" / name / entry["file"]).read_text().splitlines()
        assert sum(int(line.rpartition(" ")[2]) for line in lines) == entry["samples"] > 0
    assert "profiles missing" not in outcome.err


def test_runs_of_a_campaign_share_agents_unless_the_agenda_wants_fresh_ones(workspace: Any) -> None:
    for fresh in (False, True):
        agenda = workspace.agenda(schedulers=["even", "top-storm"], sensors=["cpu"], fresh_agents=fresh)
        assert workspace.run("run", agenda).status == 0
        assert {run["status"] for run in workspace.results().values()} == {"ok"}
        logs = [path.read_text() for path in workspace.campaign.glob("runs/*/logs/n1/agent.log")]
        processes = {re.search(r"agent of n1, process (\d+)", log)[1] for log in logs}
        assert len(logs) == 2
        assert len(processes) == (2 if fresh else 1)
        assert sum("used again: clean" in log for log in logs) == (0 if fresh else 1)
    assert not workspace.processes()


def test_an_adaptive_warm_up_ends_with_the_transient_or_at_its_limit(workspace: Any) -> None:
    for limit_s in (40, 3):
        agenda = workspace.agenda(schedulers=["even"], sensors=["cpu"], warmup_s="auto", warmup_limit_s=limit_s)
        assert workspace.run("run", agenda).status == 0
        (run,) = workspace.results().values()
        times = run["times"]
        took_s = (times["measure_start_ns"] - times["source_start_ns"]) / 1e9
        doubt = f"its transient had not ended after {limit_s} s (warmup_limit_s)"
        if "transient_s" in times:
            # The rule leaves out the first half at most.
            assert 10 <= took_s < limit_s
            assert 2 * times["transient_s"] <= took_s + 1
            assert doubt not in run["suspect"]
        else:
            assert limit_s <= took_s < limit_s + 1
            assert doubt in run["suspect"]
        # A busy host may have no steady state in the first campaign; the second is too short for one.
        assert ("transient_s" not in times) or limit_s == 40

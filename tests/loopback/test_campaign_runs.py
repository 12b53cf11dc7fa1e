"""A campaign of real processes on this host, from the agenda to verified, complete results."""

import json
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
def test_two_workloads_race_under_two_schedulers_on_five_nodes(desk: Any) -> None:
    workloads = [
        {"name": "wordcount", "rate": {"kind": "constant", "tuples_per_s": 300}},
        {
            "name": "exclamation",
            "label": "loud",
            "params": {"workers": 2},
            "rate": {"kind": "steps", "steps": [[0, 100], [1, 200]]},
        },
    ]
    outcome = desk.run("run", desk.agenda(inventory="loopback", order="interleaved", workloads=workloads))
    assert outcome.status == 0, outcome
    assert f"results: results/short/{desk.campaign.name}" in outcome.out
    record = json.loads((desk.campaign / "campaign.json").read_text())
    assert {"agenda", "version", "git_commit", "host", "seeds"} <= record.keys()
    results = desk.results()
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
        assert "\nTag=" in (desk.campaign / "runs" / name / "latency.hlog").read_text()
        placed = run["placement"]["topologies"]
        assert all(entry["status"] == "placed" for entry in placed.values())
        nodes = {entry["node"] for topology in placed.values() for entry in topology["assignments"]}
        assert (run["measured"]["hops"]["inter_node"] > 0) == (len(nodes) > 1)
        traces = desk.campaign / "runs" / name / "traces"
        assert {path.stem for path in traces.iterdir()} == set(TABLES)
        cpu = pyarrow.parquet.read_table(traces / "cpu.parquet")
        assert set(cpu["node"].to_pylist()) == {"n1", "n2", "n3", "n4", "n5"}
    assert not list(desk.campaign.glob("runs/*.partial"))
    assert not desk.processes()
    assert not list(desk.temporary.iterdir())


def test_the_answer_is_the_count_of_exactly_the_lines_that_were_emitted(desk: Any) -> None:
    lines = ["to be or not to be", "that is the question", "", "to die to sleep"]
    (desk.folder / "text.txt").write_text("\n".join(lines) + "\n")
    params = {"text": "text.txt", "workers": 2, "ackers": 1, "parallelism": {"spout": 2, "split": 2, "count": 3}}
    workload = {"name": "wordcount", "params": params, "rate": {"kind": "constant", "tuples_per_s": 500}}
    outcome = desk.run("run", desk.agenda(workloads=[workload], schedulers=["even"]))
    assert outcome.status == 0, outcome
    ((name, run),) = desk.results().items()
    folder = desk.campaign / "runs" / name
    rows = pyarrow.parquet.read_table(folder / "answer" / "counts").to_pylist()
    emitted = _emitted(folder)
    # Executor i of two emits the records i, i + 2, ...: by their numbers of records, all that left is known.
    count: Counter[str] = Counter()
    for index, number in enumerate(emitted):
        mine = islice(cycle(chain(lines, lines)), index, index + 2 * number, 2)
        count.update(word for line in mine for word in line.split())
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
def test_only_does_a_part_and_resume_does_the_rest_with_the_same_agenda_only(desk: Any) -> None:
    agenda = desk.agenda()
    assert desk.run("run", agenda, "--only", "scheduler=top-storm").status == 0
    (done,) = desk.results()
    assert done == "002-wordcount-top-storm-r1"
    outcome = desk.run("run", desk.agenda(seed=99), "--resume", "results/short/latest")
    assert outcome.status == 2
    assert "another seed" in outcome.err
    agenda = desk.agenda()
    before = (desk.campaign / "runs" / done / "run.json").stat().st_mtime_ns
    outcome = desk.run("run", agenda, "--resume", "results/short/latest")
    assert outcome.status == 0, outcome
    assert list(desk.results()) == ["001-wordcount-even-r1", "002-wordcount-top-storm-r1"]
    assert (desk.campaign / "runs" / done / "run.json").stat().st_mtime_ns == before
    assert len(list((desk.folder / "results" / "short").iterdir())) == 2  # the folder and `latest`
    assert len(json.loads((desk.campaign / "campaign.json").read_text())["resumed"]) == 1


@pytest.mark.long
def test_a_resumed_campaign_goes_on_with_what_was_measured_of_the_processor_at_its_begin(desk: Any) -> None:
    workload = {"name": "linear", "rate": {"kind": "constant", "tuples_per_s": 50}}
    agenda = desk.agenda(workloads=[workload], schedulers=["even", "local-search"], duration_s=0.5)
    assert desk.run("run", agenda, "--only", "scheduler=even", "--no-report").status == 0
    (kept,) = (desk.campaign / "inputs").glob("*/*")
    outcome = desk.run("run", "--resume", "results/short/latest", "--no-report")
    assert outcome.status == 0, outcome
    first, second = desk.results().values()
    assert first["inputs"] == second["inputs"]
    assert [entry["sha256"] for entry in first["inputs"]] == [sha256(kept.read_bytes()).hexdigest()]


@pytest.mark.long
def test_repetitions_are_added_behind_the_runs_that_exist(desk: Any) -> None:
    agenda = desk.agenda(schedulers=["even"], duration_s=0.5)
    done = desk.run("run", agenda, "--repetitions", "2", "--no-report", program=desk.whole)
    assert done.status == 0, done
    assert "report" not in done.out
    assert not (desk.campaign / "report").exists()
    assert desk.live()["stage"] == "finished"
    names = ["001-wordcount-even-r1", "002-wordcount-even-r2"]
    files = [desk.campaign / "runs" / name / "run.json" for name in names]
    before = [path.stat().st_mtime_ns for path in files]
    refused = desk.run("run", "--resume", "results/short/latest", "--repetitions", "1")
    assert refused.status == 2
    assert "--repetitions 1: results/short/latest has 2 repetitions already" in refused.err
    added = desk.run("run", agenda, "--resume", "results/short/latest", "--repetitions", "3")
    assert added.status == 0, added
    results = desk.results()
    assert list(results) == [*names, "003-wordcount-even-r3"]
    assert [path.stat().st_mtime_ns for path in files] == before
    record = json.loads((desk.campaign / "campaign.json").read_text())
    assert record["agenda"]["repetitions"] == 3
    assert record["seeds"]["runs"] == {name: run["seed"] for name, run in results.items()}
    assert len(set(record["seeds"]["runs"].values())) == 3


@pytest.mark.long
def test_as_fast_as_possible_is_verified_too_and_never_called_saturated(desk: Any) -> None:
    workload = {"name": "exclamation", "params": {"workers": 2}, "rate": {"kind": "max"}}
    outcome = desk.run("run", desk.agenda(workloads=[workload], schedulers=["even"], duration_s=1))
    assert outcome.status == 0, outcome
    (run,) = desk.results().values()
    assert run["verification"]["status"] == "passed"
    assert run["measured"]["saturated"] is None


def test_an_input_that_ends_in_the_warm_up_is_verified_and_has_no_figures(desk: Any) -> None:
    readings = "".join(f"{second},{1377986401 + second},{second}.5,1,0,0,0\n" for second in range(200))
    (desk.folder / "plugs.csv").write_text(readings)
    params = {"input": "plugs.csv", "slices": [60], "workers": 2, "parallelism": dict.fromkeys(("source", "house"), 2)}
    workload = {"name": "smart-home", "params": params, "rate": {"kind": "max"}}
    outcome = desk.run("run", desk.agenda(workloads=[workload], schedulers=["even"], warmup_s=3600))
    assert outcome.status == 0, outcome
    assert "nothing measured: the input ended in the warm-up" in outcome.err
    (run,) = desk.results().values()
    assert run["verification"]["status"] == "passed"
    measured = run["measured"]
    rates = [measured[f"{of}_tuples_per_s"] for of in ("source", "throughput", "sink")]
    assert [*rates, *measured["hops"].values(), measured["latency_ms"]["p50"]] == [None] * 7
    assert run["times"]["measure_start_ns"] == run["times"]["measure_end_ns"]


def test_sources_that_cannot_keep_their_schedule_are_called_saturated(desk: Any) -> None:
    params = {"workers": 1, "ackers": 0, "parallelism": {"spout": 1, "split": 1, "count": 1}}
    workload = {"name": "wordcount", "params": params, "rate": {"kind": "constant", "tuples_per_s": 50_000_000}}
    outcome = desk.run("run", desk.agenda(workloads=[workload], schedulers=["even"]))
    assert outcome.status == 0, outcome
    (run,) = desk.results().values()
    assert run["verification"]["status"] == "passed"
    assert run["measured"]["saturated"] is True


def test_a_dry_run_shows_runs_and_placements_and_starts_and_writes_nothing(desk: Any) -> None:
    online = {"name": "p-scheduler", "label": "watched", "online": {}}
    outcome = desk.run("run", desk.agenda(schedulers=["even", "t-storm", online]), "--dry-run")
    assert outcome.status == 0, outcome
    assert "\nwordcount by even: " in outcome.out
    assert "\nwordcount by t-storm (not given: traffic, load): " in outcome.out
    assert "\nwordcount by watched (online; placed by even): " in outcome.out
    assert "001-wordcount-even-r1" in outcome.out
    assert "n1 slot 0: spout[0]" in outcome.out
    assert not (desk.folder / "results").exists()
    assert not list(desk.state.iterdir())
    assert not list(desk.temporary.iterdir())


def test_without_spark_the_results_are_complete_and_the_message_says_how_to_go_on(desk: Any) -> None:
    outcome = desk.run("run", desk.agenda(schedulers=["even"]), program=desk.without_spark)
    assert outcome.status == 3, outcome
    assert "Spark is not installed" in outcome.err or "no Java" in outcome.err
    folder = f"results/short/{desk.campaign.name}"
    assert f"The results are complete in {folder}; later: millrace report {folder}" in outcome.err
    assert [run["status"] for run in desk.results().values()] == ["ok"]


def test_quiet_leaves_only_results(desk: Any) -> None:
    outcome = desk.run("--quiet", "run", desk.agenda(schedulers=["even"]))
    assert outcome.status == 0, outcome
    assert [run["profiles"] for run in desk.results().values()] == [None]
    assert outcome.err == ""
    assert f"results: results/short/{desk.campaign.name}" in outcome.out


@pytest.mark.long
@pytest.mark.profiler
def test_profiles_lie_with_the_run_and_are_listed_in_it(desk: Any) -> None:
    workload = {"name": "exclamation", "params": {"workers": 2}, "rate": {"kind": "max"}}
    outcome = desk.run("run", desk.agenda(workloads=[workload], schedulers=["even"], duration_s=1), "--profile")
    assert outcome.status == 0, outcome
    ((name, run),) = desk.results().items()
    assert {(entry["node"], entry["reason"]) for entry in run["profiles"]} == {("n1", None), ("n2", None)}
    for entry in run["profiles"]:
        assert entry["file"] == f"profiles/{entry['node']}-{entry['slot']}.folded"
        lines = (desk.campaign / "runs" / name / entry["file"]).read_text().splitlines()
        assert sum(int(line.rpartition(" ")[2]) for line in lines) == entry["samples"] > 0
    assert "profiles missing" not in outcome.err

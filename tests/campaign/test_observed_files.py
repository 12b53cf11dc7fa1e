"""`millrace traffic` and `millrace observe`: files from results, those of earlier versions too, and their errors."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.compute as pc
import pyarrow.parquet
import pytest
from observed_rounds import SKEWED_RATES, SPREAD_PLACEMENT, chain, nodes, observed, past_revision, round_at
from traced_runs import NAME, TracedRun

from analysis.records.file_types import RunRecord
from campaign.commands.main import run
from campaign.results.live_file import LiveRecord, write_live
from controller.coordinator.live_metrics import ExecutorFlow, FlowDocument, NodeFlow
from controller.host.process_identity import this_process
from inventory.documents import dump_yaml, read
from inventory.times import utc_stamp
from scheduler.deciding import question_in_pieces
from scheduler.online.observation import Observation, check_observed, observation_of
from scheduler.problem import Problem
from workloads.traffic import load_traffic

KEPT = Path(__file__).parents[1] / "kept_results" / "0.1.0"
MOVED, GATED, FAILED = "001-wordcount-even-r1", "002-wordcount-pipeline-linear-r1", "003-wordcount-top-storm-r1"
CLUSTER = nodes(cores=2)


@pytest.fixture
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Campaign of one run, beside the files of its cluster and topology."""
    monkeypatch.chdir(tmp_path)
    Path("cluster.yml").write_text(dump_yaml(CLUSTER))
    Path("topology.yml").write_text(dump_yaml(chain()))
    return TracedRun(CLUSTER, SPREAD_PLACEMENT, SKEWED_RATES).write(tmp_path / "campaign")


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert run([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


def test_traffic_of_results_of_0_1_0_has_the_tuples_that_were_counted_then(capsys: pytest.CaptureFixture[str]) -> None:
    for name in (MOVED, GATED):
        assert run(["traffic", str(KEPT), "--run", name, "--quiet"]) == 0
        found = json.loads(capsys.readouterr().out)
        record = msgspec.json.decode((KEPT / "runs" / name / "run.json").read_bytes(), type=RunRecord)
        assert record.measured is not None
        times = record.times
        seconds = ((times.measure_end_ns or 0) - (times.measure_start_ns or 0)) / 1e9
        counted = sum(tuples or 0 for tuples in record.measured.hops.values()) / seconds
        assert sum(edge["tuples_per_s"] for edge in found["edges"]) == pytest.approx(counted, rel=0.01)
        assert found["load"].keys() == {"spout[0]", "split[0]", "split[1]", "count[0]", "count[1]"}
        assert found["node_load"].keys() == {"n1", "n2"}


def test_an_observation_of_results_of_0_1_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["observe", str(KEPT / "runs" / GATED), "--window", "3", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (round(found["since_s"], 1), round(found["at_s"], 1), found["complete"]) == (3.0, 4.5, False)
    assert found["executors"]["count[0]"]["slot"] == 1
    err = refused(capsys, "observe", KEPT / "runs" / MOVED)
    assert "samples begin 2 s after a change, and the last one (recovery) was at 2.99" in err


def test_a_written_file_is_read_by_place(campaign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["traffic", "campaign", "-o", "observed.json", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert load_traffic("observed.json", [chain()]).rate == pytest.approx(SKEWED_RATES, abs=0.01)
    # Inside a worker, nothing is encoded.
    assert "bytes_per_s" not in Path("observed.json").read_text().partition('"to": "b[1]"')[0]
    for scheduler in ("t-storm", "p-scheduler", "aniello-online"):
        files = ["--cluster", "cluster.yml", "--topology", "topology.yml", "--traffic", "observed.json"]
        assert run(["place", *files, "--scheduler", scheduler, "--json"]) == 0
        placed = json.loads(capsys.readouterr().out)["topologies"]["t"]
        assert (placed["status"], len(placed["assignments"])) == ("placed", 6)


def test_a_written_observation_is_read_by_revise(campaign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["observe", str(campaign / "runs" / NAME), "--at", "15", "--window", "10", "-o", "observation.json"]) == 0
    )
    files = ["--cluster", "cluster.yml", "--topology", "topology.yml", "--observation", "observation.json"]
    assert run(["revise", *files, "--scheduler", "i-scheduler", "--json"]) == 0
    decision = json.loads(capsys.readouterr().out)
    assert (decision["at_s"], decision["revision"]["reason"]) == (15, "cut")
    assert decision["revision"]["expects"]["cut"] == pytest.approx(90, abs=0.01)


def test_an_online_run_has_the_observations_of_its_scheduler(
    campaign: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    windows = [observed(at_s, history=[past_revision(at_s - 1)], state={"b[0]": 7}) for at_s in (6, 11)]
    questions = [
        b"".join(question_in_pieces(n, round_at(window), window)) + b"}" for n, window in enumerate(windows, 1)
    ]
    decisions = campaign / "runs" / NAME / "decisions.jsonl"
    decisions.write_bytes(
        b"\n".join([b'{"scheduler": "matrix"}', questions[0], b'{"reset": "late"}', questions[1]]) + b"\n"
    )

    def observe(*more: object) -> Observation:
        assert run(["observe", str(campaign), "-o", "observation.json", *map(str, more)]) == 0
        return observation_of(read("observation.json")).value

    assert (observe(), observe("--at", 10.9), observe("--at", 6)) == (windows[1], windows[0], windows[0])
    assert "its scheduler was asked first at 6 s, after 5.9 s" in refused(capsys, "observe", campaign, "--at", 5.9)
    assert observe("--at", 10.9, "--window", 3).since_s == pytest.approx(7.9)  # from the traces
    decisions.write_text('{"scheduler": "matrix"}\n')
    assert observe().at_s == pytest.approx(20, abs=1)
    decisions.write_text("{")
    assert "decisions.jsonl: not the decisions of a run" in refused(capsys, "observe", campaign)


def test_a_node_that_was_sampled_for_a_part_of_the_interval_has_the_load_of_that_part(
    campaign: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def node_load() -> Any:
        assert run(["traffic", str(campaign), "--quiet"]) == 0
        return json.loads(capsys.readouterr().out)["node_load"]

    whole, path = node_load(), campaign / "runs" / NAME / "traces" / "cpu.parquet"
    rows = pyarrow.parquet.read_table(path)
    times = sorted(set(rows["t_ns"].to_pylist()))
    pyarrow.parquet.write_table(rows.filter(pc.greater(rows["t_ns"], times[len(times) // 2])), path)
    assert min(whole.values()) > 0
    assert node_load() == pytest.approx(whole, rel=0.05)


def test_a_part_of_a_run_is_chosen_in_seconds_since_the_sources_started(
    campaign: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["traffic", str(campaign), "--since", "3", "--until", "4.5"]) == 0
    assert "s[0]" in capsys.readouterr().out
    assert "--until 30: the sources of 001-t-even-r1 stopped at 20 s" in refused(
        capsys, "traffic", campaign, "--until", 30
    )
    assert "the part from 19 s to 19 s is empty" in refused(capsys, "traffic", campaign, "--since", 19)
    assert "--at 20.5: the sources of 001-t-even-r1 stopped at 20 s" in refused(
        capsys, "observe", campaign, "--at", 20.5
    )
    for arguments in (("observe", campaign, "--at", 0), ("observe", campaign, "--window", "nan")):
        assert "Invalid value" in refused(capsys, *arguments)


def test_one_of_several_runs_is_chosen_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    listed = f"has 3 runs; choose one with --run NAME:\n  {MOVED}\n  {GATED}\n  {FAILED}\n"
    assert listed in refused(capsys, "traffic", KEPT)
    assert listed in refused(capsys, "observe", KEPT)
    err = refused(capsys, "traffic", KEPT, "--run", "001-wordcount-evn-r1")
    assert f"has no run '001-wordcount-evn-r1'; did you mean '{MOVED}'?" in err
    assert f"is the folder of the run {MOVED}" in refused(capsys, "traffic", KEPT / "runs" / MOVED, "--run", GATED)


@pytest.mark.parametrize("command", ["traffic", "observe"])
def test_folders_without_results_are_refused_with_the_reason(
    command: str, campaign: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert re.search(
        rf"{FAILED} has no measurements.*failed: node n2, slot 0", refused(capsys, command, KEPT, "--run", FAILED)
    )
    for folder in (campaign / "runs", campaign.parent, Path("/")):
        assert "no campaign.json here" in refused(capsys, command, folder)
    assert "there is no folder /nowhere" in refused(capsys, command, campaign, "-o", "/nowhere/x.json")
    (campaign / "runs" / NAME / "traces" / "channel.parquet").unlink()
    assert "traces/channel.parquet is missing" in refused(capsys, command, campaign)


def live(campaign: Path, **changes: Any) -> None:
    """Write the live.json of a campaign of this process, during the run `002-t-even-r2`."""
    flow = FlowDocument(
        (
            *(ExecutorFlow(name, "n1", 0, None, 100.0, 0, 0.1, 0.25, 0.5) for name in ("s[0]", "s[1]")),
            *(ExecutorFlow(name, "n2", 1, 50.0, 50.0, 7, 0.05, 0.0, None) for name in ("b[0]", "b[1]")),
            *(ExecutorFlow(name, "n3", 0, None, None, None, None, None, None) for name in ("k[0]", "k[1]")),
        ),
        (),
        (NodeFlow("n1", 0.5, {0: 0.4}), NodeFlow("n2", 0.2, {1: 0.2}), NodeFlow("n3", None, {})),
        0.5,
    )
    record = {
        "campaign": "c", "process": this_process(), "updated_utc": utc_stamp(), "run": "002-t-even-r2", "attempt": 1,
        "number": 2, "of": 2, "stage": "warming up", "stage_elapsed_s": 12.0, "stage_s": 60.0, "tuples_per_s": 90.0,
        "latency_p50_ms": 3.0, "time_left_s": 1.0, "outcomes": {}, "flow": flow,
    }  # fmt: skip
    write_live(LiveRecord(**{**record, **changes}), campaign)


def test_a_run_in_progress_is_observed_over_its_last_second_without_rates_of_pairs(
    campaign: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live(campaign)
    assert run(["observe", str(campaign), "-o", "observation.json"]) == 0
    assert "002-t-even-r2 is still running: the rates between its executors are unknown" in capsys.readouterr().err
    located = observation_of(read("observation.json"))
    check_observed(located, Problem(CLUSTER, (chain(),)))
    window = located.value
    assert (window.since_s, window.at_s, window.samples, window.complete) == (11, 12, 1, False)
    assert (window.missing, window.traffic.edges) == (("n3/0",), ())
    assert {name: (each.busy, each.load) for name, each in window.executors.items() if each.node == "n2"} == {
        "b[0]": (5, 10),
        "b[1]": (5, 10),
    }
    assert (window.executors["b[0]"].queued, window.executors["b[0]"].delay_s) == (7, 0.001)
    assert (window.nodes["n1"].load, window.nodes["n1"].base, window.nodes["n3"].load) == (0.25, 0.05, None)
    assert (window.source.due_per_s, window.source.emitted_per_s, window.source.late_s) == (200, 200, 0.5)
    assert (window.sink.per_s, window.sink.p50_ms) == (90, 3)


def test_a_run_in_progress_has_no_traces_yet(campaign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    live(campaign)
    err = refused(capsys, "traffic", campaign, "--run", "002-t-even-r2")
    assert "002-t-even-r2 is still running; its traces are collected at its end" in err
    assert "only its last second is known" in refused(capsys, "observe", campaign, "--at", 3)
    # Finished runs of the campaign can be observed.
    assert run(["observe", str(campaign), "--run", NAME]) == 0
    live(campaign, flow=None, stage="starting workers")
    assert "the run is starting workers, and its executors have reported nothing" in refused(
        capsys, "observe", campaign
    )

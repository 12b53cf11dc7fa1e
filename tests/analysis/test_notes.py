"""Notes of a report agree with the records of runs."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from analysis.page.notes import clock_notes, measuring_notes, notes_of, observed_events, without_withheld
from analysis.records.campaign import Campaign, load_campaign
from analysis.statistics.metrics import Row
from analysis.tables.summary import run_rows


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory, campaign_maker: Callable[..., Path]) -> Campaign:
    folder = tmp_path_factory.mktemp("notes") / "c"
    return load_campaign(campaign_maker(folder, workloads=["exclamation"], repetitions=1, duration_s=1.0))


def run(**changes: object) -> Row:
    defaults = {
        "run": "001",
        "saturated": False,
        "suspect": "",
        "scheduler": "even",
        "not_given": "",
        "worst_late_ms": 1.5,
        "agent_cores": 0.02,
        "steady_from_s": None,
        "host_cores": 0.9,
    }
    return defaults | changes


def note(
    campaign: Campaign, subject: str, *counted: Row, events: tuple[Row, ...] = (), energy: tuple[Row, ...] = ()
) -> str:
    tables = {"events": list(events), "energy": list(energy)}
    notes = [*notes_of(campaign, tables, list(counted)), *measuring_notes(campaign, tables, list(counted))]
    return dict(notes).get(subject, "")


def event(kind: str, subject: str = "", detail: str | None = None, mean: float | None = None, times: int = 1) -> Row:
    return {"run": "001", "kind": kind, "subject": subject, "times": times, "mean_value": mean, "detail": detail}


def test_energy_is_missing_and_not_zero(campaign: Campaign) -> None:
    words = note(campaign, "Energy", run(), events=(event("sensor_absent", "power", "no RAPL in a virtual machine"),))
    assert words.startswith("no energy source on this host; no RAPL in a virtual machine:")
    assert words.endswith("it is not zero.")
    why = "n1: no energy source (rapl: no zone)"
    rows = ({"joules": None, "reason": why, "source": "", "modelled": False},) * 2
    assert note(campaign, "Energy", run(), energy=rows).count(why) == 1


def test_energy_names_its_sources_and_what_is_modelled_or_missing(campaign: Campaign) -> None:
    rows = [{"joules": 4.0, "source": "rapl", "modelled": False}] * 3
    rows += [
        {"joules": 4.0, "source": "model", "modelled": True},
        {"joules": None, "source": "rapl", "modelled": False},
    ]
    words = note(campaign, "Energy", run(), energy=tuple(rows))
    assert words.startswith(
        "measured by rapl in 3 of 5 runs; modelled and not measured, by model in 1 of 5 runs; missing in 1, where it is"
    )


def test_a_scheduler_without_an_input_that_it_uses_is_named_once(campaign: Campaign) -> None:
    assert note(campaign, "Not given", run()) == ""
    without_traffic = run(scheduler="t-storm", not_given="traffic, load")
    words = note(campaign, "Not given", run(), without_traffic, without_traffic)
    assert words.startswith("t-storm would use observed traffic, observed loads: none was given")


def test_suspect_runs_are_named_with_what_happened(campaign: Campaign) -> None:
    assert note(campaign, "Suspect runs", run()) == ""
    words = note(campaign, "Suspect runs", run(), run(run="007", suspect="cpu0: it has throttled itself"))
    assert words.startswith("1 of 2 runs, marked in every table")
    assert words.endswith("007 (cpu0: it has throttled itself).")


def test_sources_that_fell_behind_are_named(campaign: Campaign) -> None:
    late = [run(run=f"{k:03d}", saturated=True) for k in range(1, 9)]
    words = note(campaign, "Sources", run(run="009"), *late)
    assert words.startswith(
        "in 8 of 9 runs the sources, or the topology behind them, did not keep up with the schedule (saturated)"
    )
    assert words.endswith("001, 002, 003, 004, 005, 006, ….")


def test_sources_without_a_schedule_are_reported_separately(campaign: Campaign) -> None:
    unscheduled = run(saturated=None, worst_late_ms=None)
    expected = "2 of 2 runs had no schedule to keep, their latency counts from emission."
    assert note(campaign, "Sources", unscheduled, unscheduled) == expected
    assert note(campaign, "Sources", unscheduled, run()).endswith("from emission; the others kept theirs.")


def test_sources_that_kept_their_schedule_have_the_largest_delay(campaign: Campaign) -> None:
    words = note(campaign, "Sources", run(), run(worst_late_ms=12.34))
    assert words == "kept to their schedule in all 2 runs; the latest tuple left 12.3 ms after it was due."
    words = note(campaign, "Sources", run(), run(worst_late_ms=12345.6))
    assert words.endswith("the latest tuple left 12,346 ms after it was due.")


def test_the_cost_of_measuring_is_measured_or_unknown(campaign: Campaign) -> None:
    costs = (event("sampler_cost", "sampler", mean=0.0014), event("sampler_cost", "sampler", mean=0.0025))
    words = note(campaign, "Cost of measuring", run(), run(agent_cores=0.05), events=costs)
    assert words == (
        "all 5 node agents together used 0.02 to 0.05 cores, of which each sample of the sensors took 1.4 to 2.5 ms."
    )
    assert note(campaign, "Cost of measuring", run(agent_cores=None)) == "not known: no CPU sensor worked."


def test_a_nearly_full_host_is_reported(campaign: Campaign) -> None:
    assert note(campaign, "Full host", run(host_cores=1.69)) == ""
    assert note(campaign, "Full host", run(host_cores=None)) == ""
    assert "in 1 of 2 runs more than 85% of the host's 2 cores" in note(
        campaign, "Full host", run(), run(host_cores=1.71)
    )


def test_rejected_connections_are_reported_with_reasons(
    campaign: Campaign, tmp_path: Path, campaign_maker: Callable[..., Path]
) -> None:
    assert note(campaign, "Refused connections", run()) == ""
    folder = campaign_maker(tmp_path / "c", workloads=["exclamation"], repetitions=1, duration_s=1.0)
    first, *_ = sorted(folder.glob("runs/*/run.json"))
    record = json.loads(first.read_text())
    record["measured"]["refused_connections"] = {"time-out": 2, "not this protocol": 40}
    first.write_text(json.dumps(record))
    words = note(load_campaign(folder), "Refused connections", run())
    assert words.startswith("workers rejected 42 connections to their data ports in 1 of 2 runs")
    assert "(40 not this protocol, 2 time-out)" in words


def test_rows_left_out_of_an_input_are_reported_per_workload_and_class(
    campaign: Campaign, tmp_path: Path, campaign_maker: Callable[..., Path]
) -> None:
    assert note(campaign, "Rows left out", run()) == ""
    folder = campaign_maker(tmp_path / "c", workloads=["exclamation", "wordcount"], repetitions=2, duration_s=1.0)
    for path in folder.glob("runs/*/run.json"):
        record = json.loads(path.read_text())
        if record["workload"] == "wordcount":
            record["verification"]["quarantined"] = {"malformed": 1200, "outlier": 0, "out_of_order": 7}
            path.write_text(json.dumps(record))
    words = note(load_campaign(folder), "Rows left out", run())
    assert words.endswith("references: of wordcount, 1,200 malformed, 7 out of order.")


def test_without_a_run_that_counts_there_are_no_notes(campaign: Campaign) -> None:
    assert notes_of(campaign, {"events": [], "energy": []}, []) == []


def test_events_of_sensors_and_workers_are_added_up_over_runs() -> None:
    rows = [
        event("refused_connection", "worker 0", "bad key", 7.5, times=2),
        event("refused_connection", "worker 3", "timeout", 1.0),
        event("measure_start"),
        event("samples_skipped", "sampler", None, 3.0),
    ]
    connections, samples = observed_events(rows)
    # The value of a row is a number of connections.
    assert (connections["subject"], connections["times"], connections["details"]) == ("", 16, {"bad key", "timeout"})
    assert (samples["kind"], samples["values"]) == ("samples_skipped", [3.0])


@pytest.mark.parametrize(("tier", "cores"), [(2, 1.22), (1, 1.22), (0, 6.1)])
def test_an_emulating_host_counts_once_even_if_agents_did_not_mark_it_as_shared(
    campaign: Campaign, tier: int, cores: float
) -> None:
    run_ = campaign.runs[0]
    assert run_.file is not None
    with_tier = replace(run_, file=msgspec.structs.replace(run_.file, tier=tier))
    rows = [{"run": run_.id, "node": f"n{k}", "scope": "core", "cores": 1.22, "shared": False} for k in range(5)]
    tables = {name: [] for name in ("components", "busy", "latency", "hops", "memory")} | {"cpu": rows}
    (row,) = run_rows(replace(campaign, runs=[with_tier]), tables)
    assert row["host_cores"] == pytest.approx(cores)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, campaign_maker: Callable[..., Path]) -> Path:
    target = tmp_path_factory.mktemp("clocks") / "c"
    return campaign_maker(target, workloads=["exclamation"], repetitions=2, duration_s=1.0)


def with_bounds(folder: Path, *bounds: float, withheld: tuple[str, ...] = ()) -> Campaign:
    """Return the campaign with these clock bounds in its first runs."""
    for run, bound in zip(load_campaign(folder).runs, bounds, strict=False):
        path = run.folder / "run.json"
        record: dict[str, Any] = json.loads(path.read_text())
        record["measured"].setdefault("latency_ms", {}).update(bound=bound, withheld=list(withheld))
        path.write_text(json.dumps(record))
    return load_campaign(folder)


def test_a_single_clock_has_no_note(folder: Path) -> None:
    campaign = with_bounds(folder, 0.0, 0.0)
    assert clock_notes(campaign) == []
    rows = [{"run": campaign.runs[0].id, "quantile": 0.5, "latency_ms": 0.0, "samples": 3}]
    assert without_withheld(campaign, rows) == rows


def test_the_bound_is_reported_and_latencies_within_it_are_left_out(folder: Path) -> None:
    campaign = with_bounds(folder, 0.25, 4.0, withheld=("p50",))
    ((subject, words),) = clock_notes(campaign)
    assert subject == "Clocks"
    assert "off by 0.25 to 4 ms" in words
    assert f"In 2 of {len(campaign.counted)} runs some latencies were no larger" in words
    first, second = (run.id for run in campaign.runs[:2])
    values = [(first, 0.3), (first, 0.2), (second, 4.0), (second, 4.1), (second, None)]
    rows = [{"run": run, "quantile": 0.5, "latency_ms": value, "samples": 3} for run, value in values]
    assert [row["latency_ms"] for row in without_withheld(campaign, rows)] == [0.3, None, None, 4.1, None]

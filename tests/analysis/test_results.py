"""Reading a campaign's folder: runs that count, reasons of those that do not, and invalid files."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.records.campaign import UNMARKED, load_campaign
from inventory.errors import InputError

Maker = Callable[..., Path]


@pytest.fixture
def campaign(campaign_maker: Maker, tmp_path: Path) -> Path:
    return campaign_maker(tmp_path / "c", workloads=["exclamation"], repetitions=2, warmup_s=0.0, duration_s=1.0)


def edit(path: Path, **changes: object) -> None:
    document = json.loads(path.read_text())
    document |= changes
    path.write_text(json.dumps(document))


def test_workloads_and_schedulers_have_the_order_of_the_agenda(campaign_maker: Maker, tmp_path: Path) -> None:
    folder = campaign_maker(
        tmp_path / "c",
        workloads=["wordcount", "exclamation"],
        schedulers=["top-storm", "even"],
        repetitions=1,
        duration_s=1.0,
    )
    found = load_campaign(folder)
    assert (found.workloads, found.schedulers) == (("wordcount", "exclamation"), ("top-storm", "even"))
    assert found.nodes == ("n1", "n2", "n3", "n4", "n5")
    assert found.baseline(None) == "top-storm"
    assert found.baseline("even") == "even"


@pytest.mark.parametrize("outcome", ["done", "late", "failed"])
def test_a_run_counts_only_if_its_whole_timeline_happened_in_time(campaign: Path, outcome: str) -> None:
    path = min(campaign.glob("runs/*/run.json"))
    entry = {"do": "move", "subject": "count[0]", "asked_s": 2.5, "outcome": outcome, "reason": "node n2 is lost"}
    edit(path, timeline=[entry], suspect=["as said"])
    run = load_campaign(campaign).runs[0]
    assert (run.status, run.reason, run.suspect) == ("ok", "", "as said")
    assert run.counts == (outcome == "done")
    how = {"done": "", "late": "was late", "failed": "did not happen"}[outcome]
    assert run.left_out == (f"timeline: move count[0] at 2.5 s {how}: node n2 is lost" if how else "")


def test_runs_under_other_cpu_settings_are_not_compared(campaign: Path) -> None:
    document = json.loads((campaign / "campaign.json").read_text())
    document["agenda"]["cpu"] = [{"label": "slow", "nodes": {}}, {"label": "fast", "nodes": {}}]
    (campaign / "campaign.json").write_text(json.dumps(document))
    for path in campaign.glob("runs/*/run.json"):
        edit(path, cpu_settings="fast" if path.parent.name.endswith("r1") else "slow")
    found = load_campaign(campaign)
    assert found.workloads == ("exclamation (slow)", "exclamation (fast)")
    assert {run.repetition for run in found.runs if run.workload == "exclamation (fast)"} == {1}


def test_runs_at_other_values_of_factors_are_not_compared(campaign_maker: Maker, tmp_path: Path) -> None:
    campaign = campaign_maker(tmp_path / "c", workloads=["exclamation"], repetitions=3, warmup_s=0.0, duration_s=1.0)
    key = "workloads.exclamation.params.parallelism.exclaim1"
    document = json.loads((campaign / "campaign.json").read_text())
    document["agenda"]["factors"] = {"nodes": [10, 9], key: [2]}
    (campaign / "campaign.json").write_text(json.dumps(document))
    values = {"r1": {"nodes": 9, key: 2}, "r2": {"nodes": 10, key: 2}, "r3": {"nodes": 7, key: 2}}
    for path in campaign.glob("runs/*/run.json"):
        edit(path, factors=values[path.parent.name.rpartition("-")[2]])
        if path.parent.name.endswith("r1"):
            placement = json.loads(path.read_text())["placement"]
            placement["nodes"] = [*placement["nodes"], {"id": "n99"}]
            edit(path, placement=placement)
    found = load_campaign(campaign)
    assert [count for count in (10, 9, 7) if "n99" in found.nodes_of(f"exclamation (nodes={count}, exclaim1=2)")] == [9]
    assert "n99" in found.nodes
    assert found.workloads == tuple(f"exclamation (nodes={count}, exclaim1=2)" for count in (10, 9, 7))
    for count, repetition in ((9, 1), (10, 2), (7, 3)):
        label = f"exclamation (nodes={count}, exclaim1=2)"
        assert {run.repetition for run in found.runs if run.workload == label} == {repetition}


def test_results_of_an_unknown_version_are_refused(campaign: Path) -> None:
    for version, refused in ((1, False), (2, False), (3, True), (0, True)):
        edit(campaign / "campaign.json", results_version=version)
        if refused:
            with pytest.raises(InputError, match=rf"results_version: got {version}, but this version .* reads 1 to 2"):
                load_campaign(campaign)
        else:
            assert load_campaign(campaign).counted


def test_an_unknown_baseline_names_the_nearest_scheduler(campaign: Path) -> None:
    with pytest.raises(InputError, match=r"no run of the baseline 'top_storm'; did you mean 'top-storm'\?"):
        load_campaign(campaign).baseline("top_storm")


def test_a_run_that_was_cut_off_is_listed_with_the_way_to_complete_it(campaign_maker: Maker, tmp_path: Path) -> None:
    cut = ("exclamation", "even", 1)
    folder = campaign_maker(
        tmp_path / "c", workloads=["exclamation"], repetitions=1, duration_s=1.0, cut_off=[cut], skipped=[]
    )
    (folder / "runs" / "003-exclamation-even-r2.partial").mkdir()
    (folder / "runs" / "003-exclamation-even-r2.partial" / "run.json").write_text("{")
    found = load_campaign(folder)
    assert [(run.status, run.counts) for run in found.runs] == [
        ("cut off", False),
        ("ok", True),
        ("cut off", False),
    ]
    assert "--resume" in found.runs[0].reason


def test_a_skipped_run_keeps_its_reason(campaign_maker: Maker, tmp_path: Path) -> None:
    skipped = ("exclamation", "even", 1)
    folder = campaign_maker(tmp_path / "c", workloads=["exclamation"], repetitions=1, duration_s=1.0, skipped=[skipped])
    run = load_campaign(folder).runs[0]
    assert (run.status, run.reason) == ("skipped", "an earlier attempt failed")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda p: p.unlink(), "traces/latency.parquet is missing"),
        (lambda p: p.write_bytes(p.read_bytes()[:-9]), "traces/latency.parquet is not a whole Parquet file"),
        (
            lambda p: shutil.copy(p.with_name("clock.parquet"), p),
            "traces/latency.parquet has the columns run, node, worker, t_ns, utc_ns, offset_ns, bound_ns: another",
        ),
        (
            lambda p: shutil.copy(p.parents[2] / "002-exclamation-top-storm-r1" / "traces" / p.name, p),
            "traces/latency.parquet holds rows of 002-exclamation-top-storm-r1",
        ),
    ],
)
def test_a_run_without_whole_traces_does_not_count(
    campaign: Path, damage: Callable[[Path], object], reason: str
) -> None:
    damage(campaign / "runs" / "001-exclamation-even-r1" / "traces" / "latency.parquet")
    run, *others = load_campaign(campaign).runs
    assert not run.counts
    assert run.reason.startswith(reason)
    assert all(other.counts for other in others)


def test_a_run_without_a_measured_interval_does_not_count(campaign: Path) -> None:
    path = campaign / "runs" / "001-exclamation-even-r1" / "run.json"
    times = json.loads(path.read_text())["times"]
    edit(path, times=times | {"measure_end_ns": None})
    assert load_campaign(campaign).runs[0].reason == "run.json does not say when the measured interval was"
    edit(path, times=times | {"measure_end_ns": times["measure_start_ns"]})
    assert load_campaign(campaign).runs[0].reason == "the measured interval is empty: the input ended in the warm-up"


def test_keys_of_later_versions_are_ignored(campaign: Path) -> None:
    edit(campaign / "campaign.json", cluster={"nodes": []}, mood="good")
    edit(campaign / "runs" / "001-exclamation-even-r1" / "run.json", energy={"joules": 3})
    assert len(load_campaign(campaign).counted) == 4


RECOVERY = {"at_s": 1.0, "took_s": 0.5, "cause": "a worker died", "checkpoint": 1, "replayed_tuples": 0}


@pytest.mark.parametrize(
    ("changes", "recoveries", "incomplete", "suspect"),
    [
        ({}, 0, "", ""),
        ({"recoveries": [RECOVERY], "incomplete": None}, 1, "", "1 recovery"),
        ({"recoveries": [RECOVERY] * 2, "incomplete": "why"}, 2, "why", "2 recoveries, figures incomplete: why"),
        # Of a version that counted replays in figures and did not mark such runs.
        ({"recoveries": [RECOVERY]}, 1, UNMARKED, UNMARKED),
        ({"recoveries": []}, 0, "", ""),
    ],
)
def test_runs_with_recoveries_are_marked_including_those_of_earlier_versions(
    campaign: Path, changes: dict[str, object], recoveries: int, incomplete: str, suspect: str
) -> None:
    path = next(campaign.glob("runs/001-*/run.json"))
    recorded = [suspect] if "incomplete" in changes else []
    edit(path, measured={"saturated": False, **changes}, suspect=recorded)
    run = load_campaign(campaign).runs[0]
    assert (run.recoveries, run.incomplete, run.suspect) == (recoveries, incomplete, suspect)
    assert run.counts


def test_the_error_for_a_folder_without_a_campaign_suggests_the_nearest_one(campaign: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere: no campaign\.json here"):
        load_campaign(tmp_path / "nowhere")
    (tmp_path / "latest").symlink_to(campaign)
    with pytest.raises(InputError, match=r"did you mean .*/latest\?"):
        load_campaign(tmp_path)


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("campaign.json", "{", r"campaign\.json: .*truncated"),
        ("campaign.json", '{"agenda": {"workloads": 3}}', r"campaign\.json: agenda: Expected `array`, got `int`"),
        ("runs/001-exclamation-even-r1/run.json", '{"status": "fine"}', r"run\.json: .*fine"),
        (
            "runs/001-exclamation-even-r1/run.json",
            json.dumps(
                {"status": "ok", "workload": "w", "scheduler": "s", "repetition": 1}
                | {"placement": {"topologies": {"w": {"assignments": [{"executor": "a[0]"}]}}}}
            ),
            r"run\.json: placement: not a placement document: KeyError 'node'",
        ),
    ],
)
def test_an_invalid_file_is_named_with_its_error(campaign: Path, file: str, text: str, complaint: str) -> None:
    (campaign / file).write_text(text)
    with pytest.raises(InputError, match=complaint):
        load_campaign(campaign)

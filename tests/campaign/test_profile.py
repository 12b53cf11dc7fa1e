"""`profile` of an agenda: the profiling runs of a campaign, and placements that use their traffic."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from analysis.records.factors import factors_text
from campaign.agenda.profiling import profiling_plan
from campaign.commands.main import run
from campaign.results.estimate import AGENTS_S, START_S
from campaign.results.live_file import FAILING, LiveFile, read_live, write_live
from campaign.results.live_file import OVERHEAD_S as OVERHEAD
from campaign.runner.open_campaign import Opened, new, resumed
from campaign.runner.profiling import begin_profiling, end_profiling
from inventory.errors import InputError, RunError
from workloads.workload import PreparedInput

STARTED_S = START_S + AGENTS_S
"""Assumed seconds of a campaign before and after its runs."""

NODES = [
    {"id": f"n{k}", "address": f"127.0.0.{k + 1}", "cores": 2, "slots": 4, "ghz": 2, "flops_per_cycle": 4}
    for k in (1, 2, 3)
]

WORDCOUNT: dict[str, Any] = {
    "name": "wordcount",
    "params": {"workers": 2, "ackers": 0, "parallelism": {"spout": 1, "split": 2, "count": 2}},
    "rate": {"kind": "constant", "tuples_per_s": 10},
}

AGENDA: dict[str, Any] = {
    "name": "profiled",
    "inventory": "three.json",
    "repetitions": 2,
    "warmup_s": 3,
    "duration_s": 9,
    "sensors": ["memory"],
    "profile": {"scheduler": "even", "duration_s": 5},
    "workloads": [WORDCOUNT],
    "schedulers": ["even", "t-storm", "aniello-online", "p-scheduler"],
}

TRAFFIC = {
    "edges": [
        {"from": "spout[0]", "to": "split[1]", "tuples_per_s": 9.0},
        {"from": "split[1]", "to": "count[0]", "tuples_per_s": 90.0},
        {"from": "split[0]", "to": "count[1]", "tuples_per_s": 1.0},
    ],
    "load": {"spout[0]": 5.0, "split[0]": 1.0, "split[1]": 20.0, "count[0]": 30.0, "count[1]": 2.0},
    "node_load": {"n1": 0.2},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "three.json").write_text(json.dumps({"nodes": NODES}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def opened(folder: Path, **changes: Any) -> Opened:
    (folder / "a.json").write_text(json.dumps({**AGENDA, **changes}))
    return new(str(folder / "a.json"), None, folder / "results")


def with_traffic(campaign: Opened, traffic: Any) -> Path:
    """Write the campaign's folder as if its first profiling run had been done."""
    campaign.store()
    store, name = begin_profiling(campaign, campaign.profiling)[2], campaign.profiling[0].run.name
    (store.runs / name).mkdir()
    (store.runs / name / "traffic.json").write_text(json.dumps(traffic))
    return campaign.folder


def test_schedulers_that_use_traffic_are_placed_after_the_profile_and_all_others_before(folder: Path) -> None:
    plan = opened(folder).plan
    assert {run.scheduler: plan.awaits_profile(run) for run in plan.runs} == {
        "even": False,
        "t-storm": True,
        "aniello-online": True,
        "p-scheduler": True,
    }
    assert plan.plans[""].placed.keys() == {("wordcount", "even")}
    assert plan.plans[""].placed["wordcount", "even"].traffic is None


def test_all_schedulers_that_use_traffic_get_that_of_the_profile(folder: Path) -> None:
    before = opened(folder)
    plan = resumed(with_traffic(before, TRAFFIC), None, None, lambda: None).plan
    placed = plan.plans[""].placed
    profiled = {by: found for (_, by), found in placed.items() if by != "even"}
    assert {found.traffic for found in profiled.values()} == {"profiling/profile-001-wordcount/traffic.json"}
    assert {found.not_given for found in profiled.values()} == {()}
    assert placed["wordcount", "even"].traffic is None
    assert placed["wordcount", "even"].places == before.plan.plans[""].placed["wordcount", "even"].places
    # The heaviest edge decides: its two executors share a worker.
    places = placed["wordcount", "aniello-online"].places
    assert places["split[1]"] == places["count[0]"]
    assert not any(plan.awaits_profile(run) for run in plan.runs)


def test_profiling_runs_of_a_search_are_single_runs(folder: Path) -> None:
    campaign = opened(folder, search={"kind": "sustainable"})
    assert campaign.plan.agenda.search is not None
    assert profiling_plan(campaign.plan, campaign.profiling).agenda.search is None


def test_a_placement_without_a_lost_node_uses_the_traffic_of_the_profile(folder: Path) -> None:
    plan = resumed(with_traffic(opened(folder), TRAFFIC), None, None, lambda: None).plan
    lost = next(run for run in plan.runs if run.scheduler == "aniello-online")
    places = plan.at(lost).placed["wordcount", "aniello-online"].places
    again = plan.at(lost).place_without(lost, {"n1"}, places)
    assert {slot.node for slot in again.places.values()} <= {"n2", "n3"}
    assert again.not_given == ()


def test_profiling_runs_have_their_own_duration_sensors_and_seeds(folder: Path) -> None:
    campaign = opened(folder, timeline=[{"at_s": 4, "do": "move", "executor": "count[0]", "to": "n3"}])
    (profiling,) = campaign.profiling
    plan = profiling_plan(campaign.plan, [profiling])
    assert (plan.agenda.duration_s, plan.agenda.warmup_s, plan.agenda.sensors) == (5, 3, ("cpu",))
    assert profiling.run.seed not in {run.seed for run in campaign.plan.runs}
    here = plan.at(profiling.run)
    assert here.placed.keys() == here.events.keys() == {("wordcount", "even")}
    assert here.events["wordcount", "even"] == ()
    assert here.placed["wordcount", "even"].places == campaign.plan.plans[""].placed["wordcount", "even"].places


COUNT, ALPHA = "workloads.wordcount.params.parallelism.count", "schedulers.top-storm.params.alpha"
RATE = "workloads.wordcount.rate.tuples_per_s"

CELLS: list[tuple[str, str, list[Any], bool]] = [
    ("even", ALPHA, [0.5, 0.8], True),
    ("top-storm", ALPHA, [0.5, 0.8], False),
    ("even", COUNT, [1, 2], False),
    ("even", RATE, [5, 6], False),
    ("even", "nodes", [2, 3], False),
    ("even", "slots", [2, 4], False),
]
"""Scheduler of the profile, factor, its values, and whether they share a profiling run."""


@pytest.mark.parametrize(("scheduler", "factor", "values", "share"), CELLS)
def test_combinations_share_a_profiling_run_unless_workload_cluster_or_its_scheduler_differ(
    folder: Path, scheduler: str, factor: str, values: list[Any], share: bool
) -> None:
    campaign = opened(
        folder,
        schedulers=["t-storm", "top-storm"],
        profile={"scheduler": scheduler},
        factors={factor: values},
    )
    both = tuple(factors_text({factor: value}) for value in values)
    assert [each.combinations for each in campaign.profiling] == ([both] if share else [(one,) for one in both])
    for one in campaign.plan.runs:
        served = sum(each.serves(one) for each in campaign.profiling)
        assert served == 1


def test_a_profiling_run_has_the_first_cpu_settings_of_its_runs(folder: Path) -> None:
    nodes = [{**node, "address": f"192.0.2.{at}", "class": "big"} for at, node in enumerate(NODES)]
    (folder / "three.json").write_text(json.dumps({"nodes": nodes}))
    cpu = [{"label": label, "nodes": {"*": {"turbo": False}}} for label in "abc"]
    for seed in range(3):
        campaign = opened(folder, cpu=cpu, seed=seed, **{"except": [{"cpu": "a"}]})
        assert [each.run.cpu for each in campaign.profiling] == ["b"]


def test_runs_that_need_no_traffic_need_no_profiling_runs(folder: Path) -> None:
    campaign = opened(folder)
    assert campaign.unprofiled([run for run in campaign.plan.runs if run.scheduler == "even"]) == ()
    assert campaign.unprofiled(campaign.plan.runs) == campaign.profiling
    assert opened(folder, schedulers=["even"]).profiling == ()


def test_the_dry_run_lists_profiling_runs_and_counts_their_time(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign = opened(folder)
    assert run(["run", "a.json", "--dry-run", "--json", "--no-report"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = [run.name for run in campaign.plan.runs if run.scheduler != "even"]
    expected = {"name": "profile-001-wordcount", "workload": "wordcount", "scheduler": "even", "runs": names}
    assert found["profiling"] == [{**expected, "done": False}]
    assert found["seconds"] == pytest.approx(STARTED_S + 8 * (3 + 9 + OVERHEAD) + (3 + 5 + OVERHEAD), abs=0.05)
    assert run(["run", "a.json", "--dry-run", "--no-report"]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert lines[0].split(maxsplit=1) == ["profile-001-wordcount", "placed by even; 3 s of warm-up, 5 s measured"]
    assert "wordcount by t-storm: placed after profile-001-wordcount, with its traffic and loads" in lines
    assert any(line.startswith("8 runs, 1 profiling run before them: about 2 min ") for line in lines)
    assert not (folder / "results").exists()

    done = with_traffic(campaign, TRAFFIC)
    assert run(["run", "--resume", str(done), "--dry-run", "--json", "--no-report"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["profiling"] == [{**expected, "done": True}]
    assert found["seconds"] == pytest.approx(STARTED_S + 8 * (3 + 9 + OVERHEAD), abs=0.05)


def test_a_profiling_run_without_measurements_is_repeated(folder: Path) -> None:
    campaign = opened(folder)
    campaign.store()
    result = campaign.profiles.runs / "profile-001-wordcount"
    result.mkdir(parents=True)
    (result / "run.json").write_text('{"status": "ok", "workload": "wordcount", "scheduler": "even", "repetition": 0}')
    plan, runs, store = begin_profiling(campaign, campaign.profiling)
    assert [each.name for each in runs] == ["profile-001-wordcount"]
    assert plan.runs == tuple(runs)
    assert list(store.runs.iterdir()) == []


def test_a_profile_of_another_input_is_refused(folder: Path) -> None:
    campaign = opened(folder)
    campaign.store()
    result = campaign.profiles.runs / "profile-001-wordcount"
    result.mkdir(parents=True)
    record = {"status": "ok", "workload": "wordcount", "scheduler": "even", "repetition": 0}
    (result / "run.json").write_text(json.dumps({**record, "inputs": [{"name": "text", "sha256": "1"}]}))
    for sha256 in ("1", "2"):
        inputs = {("", "wordcount"): [PreparedInput("text", folder / "text", sha256, 1, "made")]}
        with nullcontext() if sha256 == "1" else pytest.raises(InputError, match="profile-001-wordcount was done with"):
            campaign.check_inputs(inputs)


def test_a_failed_profile_ends_the_campaign_with_its_reason(folder: Path) -> None:
    campaign = opened(folder)
    campaign.store()
    write_live(LiveFile("profiled", 1, 0, 1.0).record(), campaign.folder)
    with pytest.raises(RunError, match=r"^profile-001-wordcount: wrong answer\nno run was measured: .* --resume "):
        end_profiling(campaign, campaign.profiling, {"profile-001-wordcount": "wrong answer"})
    live = read_live(campaign.folder)
    assert live is not None
    assert live.stage == FAILING


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"profile": {"scheduler": "evn"}}, "a.json:1: profile.scheduler: unknown scheduler 'evn'; did you mean 'even'?"),
    ({"profile": {"scheduler": "p-scheduler"}}, "a.json:1: profile.scheduler: the scheduler 'p-scheduler' needs obser"),
    ({"profile": {"scheduler": "even", "duration_s": 0}}, "a.json:1: profile.duration_s: "),
    ({"profile": {"scheduler": "even", "seconds": 3}}, "seconds"),
    ({"profile": {"scheduler": "resource-aware"}}, "profile.scheduler: the profile cannot be placed: the scheduler 'r"),
    (
        {"workloads": [{**AGENDA["workloads"][0], "rate": {"kind": "constant", "load": 0.5}}], "baseline": "even"},
        "rate.load: loads are calibrated after profiling runs, which need the rate; give tuples_per_s",
    ),
    ({"profile": None}, "schedulers[2]: the scheduler 'aniello-online' needs observed traffic: add profile: {schedul"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_wrong_profiles_end_with_status_2_before_anything_starts(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], message: str
) -> None:
    (folder / "three.json").write_text(json.dumps({"nodes": [{**node, "cpu": 10} for node in NODES]}))
    (folder / "a.json").write_text(json.dumps({**AGENDA, **changes}))
    assert run(["run", "a.json"]) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "results").exists()


UNUSABLE: list[tuple[Any, str]] = [
    ({"edges": [{"from": "spout[0]", "to": "split[7]", "tuples_per_s": 1}]}, "unknown executor 'split[7]'"),
    ({"edges": [{"from": "spout[0]", "to": "split[0]", "tuples_per_s": -1}]}, "tuples_per_s"),
    ({"edges": 3}, "edges"),
]


@pytest.mark.parametrize(("traffic", "message"), UNUSABLE)
def test_a_traffic_file_that_cannot_be_used_is_named_when_the_campaign_is_resumed(
    folder: Path, traffic: Any, message: str
) -> None:
    done = with_traffic(opened(folder), traffic)
    with pytest.raises(InputError, match=r"profile-001-wordcount/traffic\.json:") as refused:
        resumed(done, None, None, lambda: None)
    assert message in str(refused.value)

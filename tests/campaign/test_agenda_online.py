"""Online runs of an agenda: windows, rules of revisions, placements at the start, labels, and errors."""

import re
from pathlib import Path

import pytest
from msgspec.structs import fields

from campaign.agenda.agenda import agenda_of
from campaign.agenda.campaign_plan import select_runs
from campaign.agenda.online import OnlineEntry, OnlineRun, RevisionEntry, RevisionRules
from campaign.agenda.plan import CombinationPlan, plan_of
from campaign.commands.main import run
from inventory.cluster import cluster_from_document
from inventory.documents import dump_json, parse_document, to_plain
from inventory.errors import InputError
from inventory.reading import read_cluster
from scheduler.online.replanner import Replan
from scheduler.online.revision import Rhythm

AGENDA = """\
name: online
workloads:
  - {name: wordcount, params: {parallelism: {spout: 2, split: 2, count: 2}}, rate: {kind: max}}
revision: {settle_s: 3, most_moves: {run: 40}, wave: 5}
schedulers:
"""


def plan(*schedulers: str, text: str = AGENDA) -> CombinationPlan:
    document = parse_document(text + "".join(f"  - {entry}\n" for entry in schedulers), "a.yaml")
    return plan_of(agenda_of(document), read_cluster("loopback"))


def online(scheduler: str, text: str = AGENDA) -> OnlineRun:
    (found,) = plan(scheduler, text=text).online.values()
    return found


@pytest.mark.parametrize(
    ("name", "rhythm", "start"),
    [
        ("i-scheduler", Rhythm(50, 1, "mean", first_s=55, ask_s=60), "even"),
        ("aniello-online", Rhythm(30, 5, "mean", first_s=30, ask_s=10), "even"),
        ("t-storm", Rhythm(20, 20, "ewma", 0.5, first_s=20, ask_s=20), "t-storm"),
        ("d-storm", Rhythm(60, 1, "mean", first_s=60, ask_s=10), "d-storm"),
        ("p-scheduler", Rhythm(60, 1, "mean", first_s=60, ask_s=60), "even"),
        ("er-stream", Rhythm(5, 1, "trimmed", first_s=30, ask_s=5), "er-stream"),
    ],
)
def test_an_online_run_has_the_windows_and_the_start_of_its_scheduler(name: str, rhythm: Rhythm, start: str) -> None:
    found = plan(f"{{name: {name}, online: {{}}}}")
    assert found.online[name].rhythm == rhythm
    assert found.online[name].scheduler == name
    assert found.placed["wordcount", name].answer.scheduler == start


def test_a_scheduler_without_online_is_static() -> None:
    assert plan("even", "{name: i-scheduler}").online == {}


def test_a_static_scheduler_makes_the_first_placement_and_an_online_one_uses_its_parameter_initial() -> None:
    found = plan(
        "{name: i-scheduler, label: static}",
        "{name: i-scheduler, label: own, params: {initial: i-scheduler}, online: {}}",
        "{name: p-scheduler, params: {initial: top-storm}, online: {}}",
    )
    starts = {label: placed.answer.scheduler for (_, label), placed in found.placed.items()}
    assert starts == {"static": "i-scheduler", "own": "i-scheduler", "p-scheduler": "top-storm"}
    assert found.online["p-scheduler"].params["initial"] == "top-storm"


def test_input_that_an_online_run_observes_is_not_missing() -> None:
    document = parse_document(AGENDA + "  - er-stream\n  - {name: er-stream, label: watching, online: {}}\n")
    found = plan_of(agenda_of(document), cluster_from_document(parse_document("nodes: [{id: n1, slots: 12}]")))
    lacking = {label: placed.not_given for (_, label), placed in found.placed.items()}
    assert lacking == {"er-stream": ("traffic", "load", "hardware"), "watching": ("hardware",)}


def test_keys_of_an_entry_take_precedence_over_the_windows_of_its_scheduler() -> None:
    keys = "window_s: 12, sample_s: 2, average: trimmed, first_s: 0, ask_s: 7"
    expected = Rhythm(12, 2, "trimmed", 0.5, first_s=0, ask_s=7)
    assert online(f"{{name: i-scheduler, online: {{{keys}}}}}").rhythm == expected


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("window_s: 5", Rhythm(5, 5, "ewma", 0.5, 20, 20)),
        ("sample_s: 5", Rhythm(5, 5, "ewma", 0.5, 20, 20)),
        ("window_s: 4, sample_s: 4, average: 0.2", Rhythm(4, 4, "ewma", 0.2, 20, 20)),
        ("average: 1", Rhythm(20, 20, "ewma", 1, 20, 20)),
        ("average: mean", Rhythm(20, 20, "mean", 0.5, 20, 20)),
        ("average: trimmed, sample_s: 4", Rhythm(20, 4, "trimmed", 0.5, 20, 20)),
    ],
)
def test_a_weighted_average_has_one_time_for_window_and_sample(keys: str, expected: Rhythm) -> None:
    assert online(f"{{name: t-storm, online: {{{keys}}}}}").rhythm == expected


def test_any_scheduler_can_place_again_periodically() -> None:
    found = online("{name: top-storm, online: {replan: {every_s: 45, min_gain_percent: 5}, window_s: 30}}")
    assert found.replan == Replan(45, 5)
    assert found.rhythm == Rhythm(30, 1, "mean", first_s=45, ask_s=45)
    assert online("{name: even, online: {replan: {every_s: 45}}}").replan == Replan(45)
    assert online("{name: matrix, online: {}}").replan is None


@pytest.mark.parametrize(
    ("keys", "window_s", "sample_s"),
    [
        ("replan: {every_s: 10}", 10, 1),
        ("replan: {every_s: 0.5}", 1, 1),
        ("replan: {every_s: 7.5}", 7, 1),
        ("replan: {every_s: 10}, sample_s: 4", 8, 4),
        ("replan: {every_s: 90}", 60, 1),
        ("replan: {every_s: 10}, window_s: 20", 20, 1),
    ],
)
def test_a_window_is_not_longer_than_the_time_between_two_plans_unless_it_is_given(
    keys: str, window_s: float, sample_s: float
) -> None:
    found = online(f"{{name: top-storm, online: {{{keys}}}}}", AGENDA.replace("online\n", "online\nduration_s: 200\n"))
    assert (found.rhythm.window_s, found.rhythm.sample_s) == (window_s, sample_s)


SHORT = AGENDA.replace("revision: {settle_s: 3, ", "warmup_s: 5\nduration_s: 30\nrevision: {settle_s: 2, ")
"""A run of 35 s; nothing begins in its last 2 s."""


@pytest.mark.parametrize(
    ("entry", "first_s", "every_s", "number"),
    [
        ("top-storm, online: {replan: {every_s: 10}}", 13, 10, 2),
        ("top-storm, online: {replan: {every_s: 20}}", 23, 20, 1),
        ("top-storm, online: {replan: {every_s: 10}, window_s: 5}", 10, 10, 3),
        ("matrix, online: {window_s: 2, first_s: 3, ask_s: 2}", 5, 2, 14),
        ("t-storm, online: {}", 23, 20, 1),
        ("er-stream, online: {}", 30, 5, 1),
    ],
)
def test_questions_begin_with_the_first_full_window_and_end_before_the_run(
    entry: str, first_s: float, every_s: float, number: int
) -> None:
    assert online(f"{{name: {entry}}}", SHORT).questions(35) == (first_s, every_s, number)


@pytest.mark.parametrize(
    ("entry", "key", "what"),
    [
        ("top-storm, online: {replan: {every_s: 40}}", "replan.every_s", "43 s"),
        ("top-storm, online: {replan: {every_s: 10}, window_s: 40}", "window_s", "43 s"),
        ("matrix, online: {first_s: 34}", "first_s", "34 s"),
        ("matrix, online: {}", "", "33 s"),
        ("p-scheduler, online: {}", "", "63 s"),
    ],
)
def test_a_scheduler_that_would_never_be_asked_is_refused_with_the_key_to_change(
    entry: str, key: str, what: str
) -> None:
    with pytest.raises(InputError) as fault:
        online(f"{{name: {entry}}}", SHORT.replace("duration_s: 30", "duration_s: 27"))
    message = str(fault.value)
    assert f"a.yaml:8: schedulers[0].online{f'.{key}' if key else ''}: " in message
    assert "would never be asked" in message
    assert f"{what}, " in message
    assert "32 s (warmup_s + duration_s)" in message
    if not key:
        assert "window_s" in message


CHANGES_ONLY = "{name: pipeline-linear, online: {}}"


def test_a_scheduler_that_is_asked_at_changes_only_needs_one() -> None:
    with pytest.raises(InputError, match=r"online: .* never be asked: .* at changes only, .* first_s and ask_s"):
        online(CHANGES_ONLY, SHORT)
    for event in ("{at_s: 9, do: kill, worker: n1/0}", "{at_s: 9, do: node_down, node: n2}", "{at_s: 9, do: revise}"):
        text = SHORT.replace("schedulers:", f"timeline: [{event}]\nschedulers:")
        assert online(CHANGES_ONLY, text).questions(35) is None
    for event in ("{at_s: 34, do: revise}", "{at_s: 9, do: move, executor: 'count[0]', to: n2}"):
        with pytest.raises(InputError, match="never be asked"):
            online(CHANGES_ONLY, SHORT.replace("schedulers:", f"timeline: [{event}]\nschedulers:"))


def test_an_event_for_another_scheduler_asks_nobody_else() -> None:
    timeline = "timeline: [{at_s: 9, do: revise, scheduler: er-stream}]\nschedulers:"
    with pytest.raises(InputError, match=r"pipeline-linear.* never be asked"):
        plan("{name: er-stream, online: {}}", CHANGES_ONLY, text=SHORT.replace("schedulers:", timeline))


def test_an_entry_overrides_single_rules_of_the_agenda_and_the_agenda_those_of_the_product() -> None:
    assert online("{name: er-stream, online: {}}").revision == RevisionRules(settle_s=3, most_moves_run=40, wave=5)
    own = "revision: {how: restart, processes: new, wait_s: 30, wave: 0, most_moves: {node: 2}}"
    assert online(f"{{name: er-stream, online: {{{own}}}}}").revision == RevisionRules(
        how="restart", processes="new", wait_s=30, settle_s=3, most_moves_run=40, most_moves_node=2, wave=0
    )
    assert online("{name: er-stream, online: {}}", AGENDA.replace("revision:", "cpu: #")).revision == RevisionRules()


def test_a_scheduler_may_be_listed_several_times_under_labels_of_its_own() -> None:
    found = plan(
        "{name: er-stream, online: {}}",
        "{name: er-stream, label: stopped, params: {alpha: 0}, online: {revision: {how: restart}}}",
        "{name: even, label: base}",
        text=AGENDA.replace("revision", "baseline: base\nrevision"),
    )
    assert found.agenda.baseline == "base"
    assert sorted(run.name.split("-", 2)[2] for run in found.runs) == ["base-r1", "er-stream-r1", "stopped-r1"]
    assert found.agenda.scheduler_named == {"er-stream": "er-stream", "stopped": "er-stream", "base": "even"}
    assert (found.online["stopped"].scheduler, found.online["stopped"].params["alpha"]) == ("er-stream", 0)
    assert [run.scheduler for run in select_runs(found, "scheduler=stopped")] == ["stopped"]
    with pytest.raises(InputError, match=r"no scheduler 'even'; valid: base, er-stream, stopped"):
        select_runs(found, "scheduler=even")


def test_a_resolved_agenda_with_online_runs_reads_back_to_the_same_plan() -> None:
    first = plan(
        "{name: p-scheduler, label: p, online: {window_s: 30, revision: {most_moves: {node: 1}}}}",
        "{name: even, online: {replan: {every_s: 60}}}",
    )
    again = plan_of(agenda_of(parse_document(dump_json(first.agenda), "campaign.json")), read_cluster("loopback"))
    assert to_plain(again.agenda) == to_plain(first.agenda)
    assert again.online == first.online
    assert again.runs == first.runs


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            "{name: i-scheduler, online: {windw_s: 5}}",
            r"online\.windw_s: unknown key 'windw_s'; did you mean 'window_s'",
        ),
        ("{name: i-scheduler, onlin: {}}", r"onlin: unknown key 'onlin'; did you mean 'online'"),
        ("{name: even, online: {replan: {every_s: 0}}}", r"online\.replan\.every_s: got 0"),
        (
            "{name: even, online: {}}",
            r"online: the scheduler 'even' does not revise running topologies; .*replan: {every_s: 60}",
        ),
        (
            "{name: even, gates: {schedule: {nodes: [n1], steps: [[0]]}}, online: {replan: {every_s: 60}}}",
            r"online\.replan: a new placement needs a new communication schedule, but 'gates' has the schedule of all",
        ),
        (
            "{name: er-stream, online: {window_s: 2}}",
            r"online\.window_s: the average 'trimmed' needs at least 3 samples",
        ),
        ("{name: er-stream, online: {sample_s: 2.5}}", r"online\.sample_s: .* a window of 5 s has 2 of 2\.5 s"),
        ("{name: t-storm, online: {average: trimmed}}", r"online\.average: .* a window of 20 s has 1 of 20 s"),
        ("{name: i-scheduler, online: {window_s: 7, sample_s: 2}}", r"online\.window_s: a window of 7 s has no whole"),
        ("{name: i-scheduler, online: {window_s: 0.5}}", r"online\.window_s: a window of 0\.5 s has no whole number"),
        ("{name: i-scheduler, online: {sample_s: 60}}", r"online\.sample_s: a window of 50 s has no whole number"),
        ("{name: t-storm, online: {window_s: 9, sample_s: 3}}", r"online\.window_s: got 9, but sample_s is 3"),
        ("{name: i-scheduler, online: {average: 0}}", r"online\.average: got 0"),
        ("{name: i-scheduler, online: {average: trimed}}", r"online\.average: 'trimed' is none of .*'trimmed'"),
        ("{name: i-scheduler, online: {revision: {how: liv}}}", r"online\.revision\.how: 'liv' .*did you mean 'live'"),
        ("{name: i-scheduler, online: {revision: {owners: even}}}", r"online\.revision\.owners: unknown key 'owners'"),
        ("{name: i-scheduler, online: {revision: {most_moves: {nod: 1}}}}", r"most_moves\.nod: .*did you mean 'node'"),
        ("{name: p-scheduler}", r": the scheduler 'p-scheduler' needs observed traffic"),
        ("aniello-online", r": the scheduler 'aniello-online' needs observed traffic"),
        ("{name: p-scheduler, params: {initial: evn}, online: {}}", r"params\.initial: .*'evn'; did you mean 'even'"),
        (
            "{name: p-scheduler, params: {initial: aniello-online}, online: {}}",
            r"params\.initial: the scheduler 'aniello-online' needs observed traffic, which is not there at the start",
        ),
        ("{name: even, label: a b}", r"label: got \"a b\": expected at most 100 letters"),
    ],
)
def test_an_online_entry_that_cannot_work_is_refused_with_its_place(entry: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"^a\.yaml:6: schedulers\[0\].*{message}"):
        plan(entry)


def test_a_duplicate_label_is_refused_with_its_line() -> None:
    for entries in (("even", "{name: top-storm, label: even}"), ("{name: even, label: a}", "{name: even, label: a}")):
        with pytest.raises(
            InputError, match=r"^a\.yaml:7: schedulers\[1\]: .* is listed twice; give each one a 'label'"
        ):
            plan(*entries)


def test_an_online_run_without_the_sensor_cpu_is_refused() -> None:
    text = AGENDA.replace("revision", "sensors: [memory]\nrevision")
    with pytest.raises(InputError, match=r"^a\.yaml:7: schedulers\[0\]\.online: needs the sensor 'cpu'"):
        plan("{name: er-stream, online: {}}", text=text)
    assert plan("er-stream", text=text)


def test_the_agenda_page_documents_every_key_of_online_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "agenda.md").read_text()
    keys = [field.name for kind in (OnlineEntry, RevisionEntry) for field in fields(kind)]
    assert [key for key in keys if not re.search(rf"^\| .*`{key}`.*\|", page, re.MULTILINE)] == []


REFUSED = """\
name: refused
inventory: cluster.yaml
warmup_s: 1
duration_s: 9
workloads: [{name: wordcount, rate: {kind: RATE}}]
schedulers:
  - {name: i-scheduler, online: {ONLINE}}
timeline:
  - {at_s: 1, TIMELINE}
"""
CLUSTER = "nodes: [{id: n1, address: 127.0.0.2}, {id: n2, address: 127.0.0.3}]\n"
CONSTANT, ASK = "constant, tuples_per_s: 9", "do: revise"


@pytest.mark.parametrize(
    ("rate", "online", "event", "status", "message"),
    [
        (CONSTANT, "windw_s: 5", ASK, 2, "7: schedulers[0].online.windw_s: unknown key 'windw_s'; did you mean"),
        (CONSTANT, "average: trimmed, window_s: 2", ASK, 2, "7: schedulers[0].online.average: "),
        (CONSTANT, "", "do: node_dwn, node: n1", 2, "9: timeline[0].do: 'node_dwn' is none of the valid values"),
        (CONSTANT, "", "do: node_up, node: n3", 2, "9: timeline[0].node: there is no available node 'n3'"),
        (CONSTANT, "", "do: node_down, node: n1, nodes: 1", 2, "9: timeline[0].nodes: unknown key 'nodes'"),
        (
            CONSTANT,
            "",
            "do: scale, component: count, to: 0",
            2,
            "9: timeline[0].to: got 0: expected a whole number >= 1",
        ),
        ("max", "", "do: rate, tuples_per_s: 5", 2, "9: timeline[0].do: the rate of 'wordcount' is 'max'"),
        (
            CONSTANT,
            "revision: {how: shadow}",
            "do: node_down, node: n1",
            2,
            "9: timeline[0]: executors must leave the node, but revisions",
        ),
        (
            CONSTANT,
            "",
            "do: set_cpu, node: n1, settings: {max_ghz: 1.2}",
            3,
            "9: timeline[0].node: the nodes n1, n2 are one machine",
        ),
    ],
)
def test_an_impossible_campaign_is_refused_with_its_line(
    rate: str,
    online: str,
    event: str,
    status: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    agenda = REFUSED.replace("RATE", rate).replace("ONLINE", online).replace("TIMELINE", event)
    (tmp_path / "agenda.yaml").write_text(agenda)
    assert run(["run", "agenda.yaml"]) == status
    assert f"agenda.yaml:{message}" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agenda.yaml", "cluster.yaml"]

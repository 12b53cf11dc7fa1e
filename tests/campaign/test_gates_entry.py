"""Gates of an agenda: schedules of plans, files and agendas, refused with file, line and the nearest valid choice."""

from pathlib import Path
from typing import Literal

import pytest

from agents.protocol import Gates
from campaign.agenda.agenda import agenda_of
from campaign.agenda.plan import CombinationPlan, plan_of
from campaign.agenda.run_order import PlannedRun
from inventory.cluster import cluster_from_document
from inventory.documents import dump_json, parse_document, read, to_plain
from inventory.errors import InputError

CLUSTER = "nodes: [{id: n1}, {id: n2}, {id: n3}]"
STEPS = """\
nodes: [n3, n1, n2]
steps:
  - [0, 1, 2]
  - [1, 2, 0]
  - [2, 0, 1]
stages: 2
"""
AGENDA = """\
name: gated
inventory: three.yaml
workloads:
  - {name: wordcount, params: {ackers: 0}, rate: {kind: max}}
schedulers:
  - even
  - {name: pipeline-linear, gates: {}}
"""
FROM_FILE = "- {name: even, gates: {schedule: steps.yaml, part_tuples: 7}}"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "three.yaml").write_text(CLUSTER)
    (tmp_path / "steps.yaml").write_text(STEPS)
    return tmp_path


def plan(workspace: Path, text: str) -> CombinationPlan:
    (workspace / "a.yaml").write_text(text)
    document = read(workspace / "a.yaml")
    return plan_of(agenda_of(document), cluster_from_document(read(workspace / "three.yaml")))


def gates(found: CombinationPlan, scheduler: str) -> Gates | None:
    return found.placed["wordcount", scheduler].gates


def test_the_overlap_of_time_slots_is_set_in_the_agenda(workspace: Path) -> None:
    found = gates(plan(workspace, AGENDA.replace("gates: {}", "gates: {overlap: transfer}")), "pipeline-linear")
    assert found is not None
    assert found.overlap == "transfer"
    with pytest.raises(InputError, match=r"gates\.overlap: 'transfr' .*did you mean 'transfer'"):
        plan(workspace, AGENDA.replace("gates: {}", "gates: {overlap: transfr}"))


def test_gates_are_off_by_default(workspace: Path) -> None:
    assert gates(plan(workspace, AGENDA), "even") is None
    assert gates(plan(workspace, AGENDA.replace(", gates: {}", "")), "pipeline-linear") is None


@pytest.mark.parametrize(("scheduler", "stages", "overlap"), [("pipeline-linear", 2, "none"), ("pmod", 1, "transfer")])
def test_a_scheduler_that_gives_a_schedule_needs_no_other(
    workspace: Path, scheduler: str, stages: int, overlap: Literal["none", "transfer"]
) -> None:
    found = plan(workspace, AGENDA.replace("pipeline-linear", scheduler))
    answer = found.placed["wordcount", scheduler].answer.communication_schedule
    assert answer is not None
    expected = Gates(nodes=("n1", "n2", "n3"), steps=answer.steps, stages=stages, part_tuples=64, overlap=overlap)
    assert gates(found, scheduler) == expected


def test_any_scheduler_can_follow_the_schedule_of_a_file_beside_the_agenda(workspace: Path) -> None:
    steps = ((0, 1, 2), (1, 2, 0), (2, 0, 1))
    expected = Gates(nodes=("n3", "n1", "n2"), steps=steps, stages=2, part_tuples=7)
    assert gates(plan(workspace, AGENDA.replace("- even", FROM_FILE)), "even") == expected


def test_a_resolved_agenda_holds_the_schedule_itself_and_is_planned_without_the_file(workspace: Path) -> None:
    first = plan(workspace, AGENDA.replace("- even", FROM_FILE))
    assert to_plain(first.agenda)["schedulers"][0]["gates"]["schedule"]["nodes"] == ("n3", "n1", "n2")
    (workspace / "steps.yaml").unlink()
    again = plan(workspace, dump_json(first.agenda))
    assert again.agenda == first.agenda
    assert gates(again, "even") == gates(first, "even")


def test_a_placement_without_a_lost_node_has_its_own_schedule(workspace: Path) -> None:
    found = plan(workspace, AGENDA)
    run = next(run for run in found.runs if run.scheduler == "pipeline-linear")
    assert isinstance(run, PlannedRun)
    again = found.place_without(run, {"n2"}, {}).gates
    assert again is not None
    assert (again.nodes, len(again.steps)) == (("n1", "n3"), 2)
    ungated = next(run for run in found.runs if run.scheduler == "even")
    assert found.place_without(ungated, {"n2"}, {}).gates is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "nodes: [n3, n1, n2]",
            "nodes: [n3, n1, m2]",
            r"steps\.yaml:1: nodes\[2\]: there is no node 'm2'; valid: n1, n2, n3",
        ),
        ("nodes: [n3, n1, n2]", "nodes: [n3, n1, n3]", r"steps\.yaml:1: nodes\[2\]: the node 'n3' is listed twice"),
        ("  - [1, 2, 0]", "  - [1, 2]", r"steps\.yaml:4: steps\[1\]: got 2 entries, expected 3"),
        (
            "  - [1, 2, 0]",
            "  - [1, 2, 3]",
            r"steps\.yaml:4: steps\[1\]\[2\]: got 3, expected the number of a node, 0 to 2",
        ),
        ("  - [1, 2, 0]", "  - [1, 2, 1]", r"steps\.yaml:4: steps\[1\]\[2\]: two nodes send to 'n1' in step 1"),
        ("  - [1, 2, 0]", "  - [1, null, 0]", r"steps\.yaml:2: steps: 'n1' has no step in which it sends to 'n2'"),
        ("stages: 2", "stages: 3", r"steps\.yaml:6: stages: got 3, but 'wordcount' has 2 stages; expected 2, or 1"),
        ("stages: 2", "stage: 2", r"steps\.yaml:6: stage: .*did you mean 'stages'"),
        (
            STEPS,
            "nodes: [n1, n2]\nsteps: [[0, 1], [1, 0]]",
            r"steps\.yaml:1: nodes: 'n3' is missing, where 'even' places",
        ),
    ],
)
def test_a_wrong_schedule_is_refused_with_its_place(workspace: Path, old: str, new: str, message: str) -> None:
    assert old in STEPS
    (workspace / "steps.yaml").write_text(STEPS.replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        plan(workspace, AGENDA.replace("- even", FROM_FILE))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "- even",
            "- {name: even, gates: {}}",
            r"a\.yaml:6: schedulers\[0\]\.gates: .*'even' gives no communication schedule",
        ),
        ("gates: {}", "gates: {part_tuples: 0}", r"a\.yaml:7: schedulers\[1\]\.gates\.part_tuples: got 0"),
        (
            "gates: {}",
            "gates: {part: 9}",
            r"a\.yaml:7: schedulers\[1\]\.gates\.part: unknown key 'part'; valid: overlap, part_t",
        ),
        ("gates: {}", "gates: {schedule: no.yaml}", r"no\.yaml: cannot be read"),
        (
            "gates: {}",
            "gates: {schedule: {nodes: [n1, n2, n3], steps: [[0, 1, 2], [1, 2, 0], [2, 0]]}}",
            r"a\.yaml:7: schedulers\[1\]\.gates\.schedule\.steps\[2\]: got 2 entries",
        ),
    ],
)
def test_wrong_gates_are_refused_with_their_place(workspace: Path, old: str, new: str, message: str) -> None:
    assert old in AGENDA
    with pytest.raises(InputError, match=message):
        plan(workspace, AGENDA.replace(old, new, 1))


def test_a_move_to_a_node_outside_the_schedule_is_refused(workspace: Path) -> None:
    (workspace / "three.yaml").write_text("nodes: [{id: n1}, {id: n2}, {id: n3}, {id: n4, slots: 4}]")
    small = "params: {ackers: 0, workers: 3, parallelism: {spout: 1, split: 1, count: 1}}"
    text = AGENDA.replace("- even", FROM_FILE).replace("params: {ackers: 0}", small)
    text = text.replace("  - {name: pipeline-linear, gates: {}}\n", "")
    text += 'timeline:\n  - {at_s: 1, do: move, executor: "count[0]", to: n4}\n'
    with pytest.raises(InputError, match=r"a\.yaml:8: timeline\[0\]\.to: the communication schedule under even has no"):
        plan(workspace, text)
    assert parse_document(text)

"""`acks: true` in agendas: the running topology, the topology that schedulers get, and refused combinations."""

from pathlib import Path

import pytest

from campaign.agenda.agenda import agenda_of
from campaign.agenda.plan import CombinationPlan, plan_of
from inventory.cluster import cluster_from_document
from inventory.documents import read
from inventory.errors import InputError
from workloads.acks import ACKED
from workloads.topology import ACKER

CLUSTER = "nodes: [{id: n1}, {id: n2}, {id: n3}]"
AGENDA = """\
name: acknowledged
inventory: three.yaml
acks: true
workloads:
  - {name: wordcount, params: {ackers: 2, api: rows}, rate: {kind: constant, tuples_per_s: 100}}
schedulers:
  - {name: even}
"""


TIMELINE = """\
timeline:
  - {at_s: 1, do: rate, tuples_per_s: 9}
  - {at_s: 2, do: move, executor: "spout[0]", to: n1}
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "three.yaml").write_text(CLUSTER)
    return tmp_path


def plan(workspace: Path, text: str) -> CombinationPlan:
    (workspace / "a.yaml").write_text(text)
    return plan_of(agenda_of(read(workspace / "a.yaml")), cluster_from_document(read(workspace / "three.yaml")))


def test_only_the_running_topology_has_acknowledgements_not_that_of_schedulers(workspace: Path) -> None:
    found = plan(workspace, AGENDA)
    application, places = found.applications["wordcount"], found.placed["wordcount", "even"].places
    assert ACKED not in application.topology.component
    assert not application.topology.component[ACKER].inputs
    assert {entry.source for entry in application.running.component[ACKER].inputs} == {"spout", "split", "count"}
    running = application.running_places(places)
    assert running.keys() == {executor.name for executor in application.running.executors}
    assert all(running[f"{ACKED}[{at}]"] == places[f"spout[{at}]"] for at in range(5))


def test_acknowledgements_are_off_by_default(workspace: Path) -> None:
    found = plan(workspace, AGENDA.replace("acks: true\n", ""))
    application, places = found.applications["wordcount"], found.placed["wordcount", "even"].places
    assert application.running is application.topology
    assert application.running_places(places) is places


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("ackers: 2", "ackers: 0", "a.yaml:5: workloads[0]: acks: true, but 'wordcount' has no ackers; give its "),
        ("rows", "columns", "a.yaml:5: workloads[0]: acks: true, but 'spout' of 'wordcount' processes columns, which "),
        ("even}", "even, online: {}}", "a.yaml:3: acks: runs of 'even' are online, and executors whose rows are "),
        ("even}", "pmod, label: p, gates: {}}", "a.yaml:3: acks: runs of 'p' have gates, whose schedules have no "),
        (
            "schedulers:",
            "profile: {scheduler: even}\nschedulers:",
            "a.yaml:3: acks: a profile measures the traffic of a topology without acknowledgements",
        ),
        (
            "schedulers:",
            TIMELINE + "schedulers:",
            "a.yaml:8: timeline[1].do: 'move' moves executors, which is not possible with acks: true; expected rate, ",
        ),
        ("acks: true", "acks: yes please", "a.yaml:3: acks: "),
    ],
)
def test_impossible_acknowledgements_are_refused_with_the_reason(
    workspace: Path, old: str, new: str, message: str
) -> None:
    with pytest.raises(InputError) as fault:
        plan(workspace, AGENDA.replace(old, new))
    assert str(fault.value).removeprefix(f"{workspace}/").startswith(message)

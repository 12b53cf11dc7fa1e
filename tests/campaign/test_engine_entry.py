"""`engine: storm` in agendas: which runs use it, and refusal of features that the engine lacks."""

import ipaddress
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from campaign.agenda.agenda import agenda_of
from campaign.agenda.campaign_plan import CampaignPlan, campaign_plan
from campaign.agenda.engine import options_of, program_of
from campaign.runner import run_campaign
from campaign.runner.run_campaign import check_engines
from controller.emulation.backend import LinksBackend
from controller.ssh.backend import SshBackend
from engines.replay import EXAMPLE
from inventory.cluster import cluster_from_document
from inventory.documents import read, to_plain
from inventory.errors import InputError, UnfitError

CLUSTER = "nodes: [{id: n1}, {id: n2}, {id: n3}]"
AGENDA = """\
name: elsewhere
engine: storm
workloads:
  - {name: wordcount, params: {combine: false}, rate: {kind: constant, tuples_per_s: 100}}
schedulers:
  - {name: even}
"""


def plan(folder: Path, text: str, cluster: str = CLUSTER) -> CampaignPlan:
    (folder / "three.yaml").write_text(cluster)
    (folder / "a.yaml").write_text(text)
    return campaign_plan(agenda_of(read(folder / "a.yaml")), cluster_from_document(read(folder / "three.yaml")))


def test_a_factor_runs_the_same_placement_on_both_engines(tmp_path: Path) -> None:
    found = plan(tmp_path, AGENDA.replace("engine: storm", "factors: {engine: [agents, storm]}"))
    assert {run.name: found.at(run).agenda.engine for run in found.runs} == {
        run.name: "storm" if "-storm-" in run.name else "agents" for run in found.runs
    }
    places = {
        engine: found.plans[f"engine={engine}"].placed["wordcount", "even"].places for engine in ("agents", "storm")
    }
    assert places["agents"] == places["storm"]


def test_an_engine_s_own_settings_can_be_a_factor(tmp_path: Path) -> None:
    key = "topology.disable.loadaware.messaging"
    factor = f"factors: {{engine_options: [{{{key}: true}}, {{{key}: false}}]}}"
    found = plan(tmp_path, AGENDA.replace("engine: storm", f"engine: storm\n{factor}"))
    assert [each.agenda.engine_options[key] for each in found.plans.values()] == [True, False]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "name: e",
            "engine_options: {worker.heap: 3}\nname: e",
            "a.yaml:1: engine_options.worker.heap: is no setting of engine: storm that an agenda may change; valid: ",
        ),
        (
            "name: e",
            'engine_options: {topology.worker.childopts: "-XX:OnOutOfMemoryError=id"}\nname: e',
            "a.yaml:1: engine_options.topology.worker.childopts: is no setting of engine: storm that an agenda may cha",
        ),
        (
            "name: e",
            "engine_options: {topology.max.spout.pendin: 5}\nname: e",
            "a.yaml:1: engine_options.topology.max.spout.pendin: .*; did you mean 'topology.max.spout.pending'?",
        ),
        (
            "name: e",
            "engine_options: {topology.debug: maybe}\nname: e",
            "a.yaml:1: engine_options.topology.debug: expected `bool`, got `str`",
        ),
        (
            "engine: storm",
            "engine: flink\nengine_options: {execution.checkpointing.dir: /tmp}",
            "a.yaml:3: engine_options.execution.checkpointing.dir: is no setting of engine: flink",
        ),
        (
            "engine: storm",
            "engine: flink\nengine_options: {execution.buffer-timeout.interval: soon}",
            "a.yaml:3: engine_options.execution.buffer-timeout.interval: expected `str` matching regex",
        ),
        (
            "engine: storm",
            "engine_options: {topology.debug: true}",
            "a.yaml:2: engine_options: engine: agents has no settings of its own",
        ),
        ("storm", "strom", "a.yaml:2: engine: .*'strom'.*storm"),
        ("even}", "even, online: {}}", r"a.yaml:6: schedulers\[0\].online: an online scheduler is not possible with "),
        ("even}", "pmod, gates: {}}", r"a.yaml:6: schedulers\[0\].gates: a communication schedule is not possible"),
        (
            "engine: storm",
            "engine: flink\nacks: true",
            "a.yaml:3: acks: acknowledging rows is not possible with engine: fl",
        ),
        (
            "name: e",
            "linger_ms: 0.5\nname: e",
            "a.yaml:1: linger_ms: got 0.5, with engine: storm expected whole milliseconds",
        ),
        (
            "engine: storm",
            "engine: flink\nlinger_ms: 5\nengine_options: {execution.buffer-timeout.interval: 5 ms}",
            "engine_options.execution.buffer-timeout.interval: is set by linger_ms, too; leave one of them out",
        ),
        ("name: e", "buffer_mb: 3\nname: e", "a.yaml:1: buffer_mb: a size of input queues is not possible with engine"),
        ("name: e", "profile: {scheduler: even}\nname: e", "a.yaml:1: profile: a profiling run is not possible"),
        (
            "name: e",
            "timeline: [{at_s: 1, do: kill, agent: n1}]\nname: e",
            "a.yaml:1: timeline: a scripted event is not possible with engine: storm; leave it out, or run on engine",
        ),
        ("combine: false", "combine: true", "a.yaml:4: workloads.0..params.combine: rows cannot be combined on engine"),
        (
            "wordcount, params: {combine: false}",
            "top-n",
            "a.yaml:4: .* 'top-n' does not run on engine: storm; expected",
        ),
        ("constant, tuples_per_s: 100", "max", "a.yaml:4: .*rate: engine: storm needs a rate with due times"),
        ("tuples_per_s: 100", "load: 0.5", "a.yaml:4: .*rate: engine: storm needs a rate with due times"),
    ],
)
def test_features_that_an_engine_lacks_are_refused_with_their_line(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        plan(tmp_path, AGENDA.replace(old, new, 1))


def test_a_load_document_runs_with_its_own_rows(tmp_path: Path) -> None:
    (tmp_path / "load.json").write_text(json.dumps(to_plain(EXAMPLE)))
    text = AGENDA.replace("wordcount, params: {combine: false}", f"replay, params: {{load: {tmp_path}/load.json}}")
    (application,) = plan(tmp_path, text).plans[""].applications.values()
    program = program_of("storm", application)
    assert program.name == "replay"
    assert program.topology.component["split"].outputs == {"default": {"key": "int", "payload": "bytes"}}
    assert program.settings["component.1.operations"] == EXAMPLE.components["split"].operations


def test_a_node_with_too_little_memory_for_its_workers_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_campaign, "ready", lambda name: None)
    backends: Any = {"": SimpleNamespace(tier=2, engine_obstacle="")}
    found = plan(tmp_path, AGENDA, "nodes: [{id: n1}, {id: n2, memory_mb: 300}, {id: n3}]")
    with pytest.raises(
        UnfitError, match=r"engine: storm: node n2 has 300 MB of memory .* needs at least 550 there for the 2 workers"
    ):
        check_engines(found, found.runs, backends)
    check_engines(plan(tmp_path, AGENDA), found.runs, backends)


BACKENDS = [
    (
        SshBackend,
        "engines authenticate nobody, so that whoever reaches a port of theirs has the rights of the user; .*",
    ),
    (LinksBackend, "on an emulated cluster only root can run other engines"),
]


@pytest.mark.parametrize(("kind", "reason"), BACKENDS)
def test_nodes_that_an_engine_cannot_use_are_refused_before_anything_starts(
    tmp_path: Path, kind: type[SshBackend | LinksBackend], reason: str
) -> None:
    found = plan(tmp_path, AGENDA)
    backend: Any = object.__new__(kind)
    backend._closed = None
    with pytest.raises(
        UnfitError, match=f"engine: storm cannot run on these nodes: {reason}; expected such machines, or nodes"
    ):
        check_engines(found, found.runs, {"": backend})
    check_engines(plan(tmp_path, AGENDA.replace("storm", "agents")), found.runs, {"": backend})


@pytest.mark.parametrize(
    ("closed", "obstacle"),
    [
        ("127.0.0.0/8", ""),
        ("127.0.0.0/30", "127.0.0.9, the address of n2, is not in millrace_closed_network 127.0.0.0/30"),
        ("127.0.0.8/29", "this host has no address in millrace_closed_network 127.0.0.8/29"),
    ],
)
def test_nodes_and_controller_must_be_in_the_closed_network(closed: str, obstacle: str) -> None:
    backend = object.__new__(SshBackend)
    backend._closed = ipaddress.ip_network(closed)
    addresses = {"n1": "127.0.0.10" if obstacle.startswith("this") else "127.0.0.2", "n2": "127.0.0.9"}
    backend._addresses = addresses
    assert backend.engine_obstacle == obstacle
    assert backend.engine_address == ("" if obstacle.startswith("this") else "127.0.0.1")


def test_rows_wait_on_every_engine_as_long_as_the_agenda_says(tmp_path: Path) -> None:
    text = AGENDA.replace("engine: storm", "factors: {engine: [agents, storm, flink], linger_ms: [adaptive, 0, 5]}")
    options = {
        (each.agenda.engine, each.agenda.linger_ms): options_of(each.agenda)
        for each in plan(tmp_path, text).plans.values()
        if each.agenda.engine != "agents"
    }
    flush, produced, sent = (
        "topology.batch.flush.interval.millis",
        "topology.producer.batch.size",
        "topology.transfer.batch.size",
    )
    timeout = "execution.buffer-timeout.interval"
    assert options == {
        ("storm", "adaptive"): {},
        ("storm", 0): {flush: 1, produced: 1, sent: 1},
        ("storm", 5): {flush: 5, produced: 500, sent: 500},
        ("flink", "adaptive"): {},
        ("flink", 0): {timeout: "0 ms"},
        ("flink", 5): {timeout: "5 ms"},
    }

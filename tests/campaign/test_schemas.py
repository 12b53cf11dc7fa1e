"""JSON Schemas in docs/schemas accept the documents that Millrace reads and writes, and no others."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from schema_validation import SCHEMAS, load_valid, schema_errors

from campaign.agenda.agenda import agenda_of, builtin_agendas
from campaign.commands import authoring
from campaign.commands.main import millrace, run
from campaign.commands.schemas import TYPES, make_schema, schema_text
from campaign.results.live_file import LiveFile, write_live
from controller.coordinator.live_metrics import ExecutorFlow, FlowDocument, HopFlow, NodeFlow
from inventory.documents import parse_document, read, to_plain
from inventory.errors import InputError
from inventory.reading import shipped_inventories
from workloads.example_topologies import diamond, smart_home

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "tests" / "kept_results" / "0.1.0"
FILES = (ROOT / "docs" / "reference" / "files.md").read_text()


def example(section: str) -> Any:
    """Return the example of a section of docs/reference/files.md."""
    return parse_document(
        re.split(rf"^## {section}$", FILES, flags=re.MULTILINE)[1].split("```yaml\n")[1].split("```")[0]
    ).data


@pytest.mark.parametrize("name", TYPES)
def test_a_schema_is_valid_and_kept_for_editors(name: str) -> None:
    Draft202012Validator.check_schema(make_schema(name))
    kept = (SCHEMAS / f"{name}.json").read_text()
    assert kept == schema_text(name), "run: .venv/bin/python docs/reference/make_cli.py"
    assert {path.stem for path in SCHEMAS.iterdir()} == set(TYPES) == set(authoring.SCHEMAS)


def test_the_command_prints_a_schema_and_names_the_nearest_for_another(capsys: pytest.CaptureFixture[str]) -> None:
    assert CliRunner().invoke(millrace, ["schema", "agenda"]).output == schema_text("agenda")
    assert run(["schema", "topolgy"]) == 2
    assert "unknown schema 'topolgy'; did you mean 'topology'?" in capsys.readouterr().err


def test_properties_have_descriptions_in_terms_of_json() -> None:
    parts = make_schema("live")["$defs"]
    assert parts["ExecutorFlow"]["description"] == "Slot and current activity of one executor."
    assert parts["ExecutorFlow"]["properties"]["queued"]["description"] == "tuples in its input queue."
    assert "`in_per_s` is null for spouts" in parts["ExecutorFlow"]["properties"]["in_per_s"]["description"]


@pytest.mark.parametrize("path", builtin_agendas().values(), ids=lambda path: path.stem)
def test_built_in_agendas_are_valid(path: Path) -> None:
    assert schema_errors("agenda", read(path).data) == []


@pytest.mark.parametrize("section", ["Cluster", "Topology", "Traffic"])
def test_examples_of_the_documents_are_valid(section: str) -> None:
    assert schema_errors(section.lower(), example(section)) == []


def test_shipped_clusters_and_topologies_are_valid() -> None:
    assert schema_errors("cluster", read(shipped_inventories()["loopback"]).data) == []
    for topology in (diamond(10), smart_home()):
        assert schema_errors("topology", json.loads(json.dumps(to_plain(topology)))) == []


def test_results_of_an_earlier_version_are_valid() -> None:
    records = [load_valid("run", path) for path in KEPT.glob("runs/*/run.json")]
    assert {record["status"] for record in records} == {"ok", "failed"}
    for record in records:
        assert schema_errors("placement", record["placement"]) == []
    agenda = load_valid("campaign", KEPT / "campaign.json")["agenda"]
    assert schema_errors("agenda", agenda) == []
    load_valid("live", KEPT / "live.json")


def test_the_state_of_a_campaign_is_valid(tmp_path: Path) -> None:
    flow = FlowDocument(
        (ExecutorFlow("a[0]", "n1", 0, None, 1.0, 3, 0.5, None, None),),
        (HopFlow(hop="inter_node", source="n1", target="n2", tuples_per_s=1.0, bytes_per_s=None),),
        (NodeFlow("n1", 0.5, {0: 0.25}),),
        None,
    )
    state = LiveFile("race", 4, 1, 10.0)
    write_live(state.record(), tmp_path)
    assert (
        schema_errors(
            "live", load_valid("live", tmp_path / "live.json") | {"flow": json.loads(json.dumps(to_plain(flow)))}
        )
        == []
    )


AGENDA = {
    "name": "a",
    "workloads": [{"name": "wordcount", "rate": {"kind": "constant", "tuples_per_s": 1}}],
    "schedulers": ["even"],
}


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../a"},
        {"repetitions": 0},
        {"repetitons": 1},
        {"duration_s": 0},
        {"workloads": []},
        {"workloads": [{"name": "wordcount"}]},
        {"workloads": [{"name": "wordcount", "rate": {"kind": "constant", "tuples_per_s": 1, "mean": 2}}]},
        {"timeline": [{"at_s": 1, "executor": "a[0]", "to": "n1"}]},
        {"cpu": {"governor": "powersave"}},
        {"schedulers": [{"name": "even", "gates": {"part_tuples": 0}}]},
    ],
    ids=str,
)
def test_agendas_that_millrace_refuses_are_invalid(changes: dict[str, Any]) -> None:
    broken = {**AGENDA, **changes}
    assert schema_errors("agenda", AGENDA) == []
    assert schema_errors("agenda", broken)
    with pytest.raises(InputError):
        agenda_of(parse_document(json.dumps(broken)))


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("cluster", {"nodes": []}),
        ("cluster", {"nodes": [{"id": "n1", "cpus": 4}]}),
        ("cluster", {"nodes": [{"id": "n1", "reliability": 2}]}),
        ("topology", {"id": "t", "components": [{"id": "a b", "kind": "spout"}]}),
        ("topology", {"id": "t", "components": [{"id": "a", "kind": "bolt", "inputs": [{"source": "b"}]}]}),
        ("traffic", {"edges": [{"from": "a[0]", "to": "b[0]"}]}),
        ("traffic", {"load": {"a[0]": -1}}),
        ("placement", {"scheduler": "even"}),
        ("run", {"status": "done", "workload": "w", "scheduler": "s", "repetition": 1}),
        ("run", {"status": "ok", "workload": "w", "scheduler": "s"}),
        ("run", {"status": "ok", "workload": "w", "scheduler": "s", "repetition": 1, "placement": {"nodes": []}}),
        ("run", {"status": "ok", "workload": "w", "scheduler": "s", "repetition": 1, "measured": {"hops": {"x": "0"}}}),
        ("campaign", {}),
        ("campaign", {"agenda": {"name": "a"}}),
        ("live", {"stage": "measuring"}),
    ],
)
def test_a_broken_document_is_invalid(name: str, document: dict[str, Any]) -> None:
    assert schema_errors(name, document)


def test_keys_of_newer_results_are_valid() -> None:
    later = {"status": "ok", "workload": "w", "scheduler": "s", "repetition": 1, "factors": {"nodes": 4}}
    assert schema_errors("run", later) == []

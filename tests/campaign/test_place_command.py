"""`millrace place`: exit statuses, placements, the same output in every process, and no heavy imports."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from package_install import millrace

from campaign.commands.main import run
from inventory.plugins import plugins
from scheduler.placement_file import parse_placement_file, to_json
from workloads.workload import GROUP, load_workload

WORD_COUNT = """
id: wordcount
workers: 5
components:
  - {id: spout, kind: spout, parallelism: 5}
  - {id: split, kind: bolt, parallelism: 8, inputs: [{from: spout, grouping: shuffle}]}
  - {id: count, kind: bolt, parallelism: 12, inputs: [{from: split, grouping: fields, fields: [word]}]}
  - {id: __acker, kind: bolt, parallelism: 3}
"""
CYCLE = """
id: ring
components:
  - {id: a, kind: bolt, inputs: [{from: b}]}
  - {id: b, kind: bolt, inputs: [{from: a}]}
"""
SMALL = "nodes: [{id: n1, slots: 1, ghz: 1, flops_per_cycle: 4}, {id: n2, slots: 1, flops_per_cycle: 4}]"
TRAFFIC = """
edges:
  - {from: "spout[0]", to: "split[3]", tuples_per_s: 10.5}
  - {from: "split[3]", to: "count[1]", tuples_per_s: 2}
"""

Place = Callable[..., tuple[int, str, str]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Place:
    """Run `place` in a folder with the files above; return status, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    files = {"wc": WORD_COUNT, "ring": CYCLE, "small": SMALL, "traffic": TRAFFIC}
    files |= {"away": "favored_nodes: [n1]\nunfavored_nodes: [n2, n11]", "own": "machines: {wordcuont: 1}"}
    files["apart"] = "spread: {wordcount: [split, cuont]}"
    files["other"] = WORD_COUNT.replace("id: wordcount", "id: other")
    for name, text in files.items():
        (tmp_path / f"{name}.yml").write_text(text)

    def placed(*arguments: str, cluster: str = "loopback", scheduler: str = "even") -> tuple[int, str, str]:
        topologies = () if "--topology" in arguments else ("--topology", "wc.yml")
        status = run(["place", "--cluster", cluster, "--scheduler", scheduler, *topologies, *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return placed


def test_json_is_the_only_thing_on_standard_output(place: Place) -> None:
    status, out, err = place("--json", scheduler="top-storm")
    assert (status, err) == (0, "")
    answer = json.loads(out)
    assert list(answer) == [
        "scheduler",
        "params",
        "elapsed_s",
        "topologies",
        "cost",
        "nodes",
        "communication_schedule",
        "freed",
        "details",
        "migrations",
        "frequencies_hz",
    ]
    assert answer["scheduler"] == "top-storm"
    assert answer["params"] == {"alpha": 0.8, "affinity": "group", "normalise": False, "flops": None}
    topology = answer["topologies"]["wordcount"]
    assert list(topology) == ["status", "message", "assignments", "unassigned"]
    assert (topology["status"], topology["message"], topology["unassigned"]) == ("placed", "", [])
    assert len(topology["assignments"]) == 28
    assert topology["assignments"][0] == {"executor": "spout[0]", "node": "n4", "slot": 0}
    assert list(answer["cost"]) == [
        "inter_node_edges",
        "inter_node_tuples_per_s",
        "inter_worker_edges",
        "nodes_used",
        "slots_used",
        "load_stddev",
        "overloaded_nodes",
        "overloaded_workers",
        "undetermined_workers",
    ]
    assert answer["cost"]["nodes_used"] == 2
    assert answer["cost"]["inter_node_tuples_per_s"] is None
    assert [(node["id"], node["index"]) for node in answer["nodes"]] == [
        ("n1", 5),
        ("n2", 4),
        ("n3", 3),
        ("n4", 1),
        ("n5", 2),
    ]
    assert answer["nodes"][3]["computing_power"] == pytest.approx(176.48)
    assert answer["communication_schedule"] is None
    assert len(answer["details"]["groups"]) == len(answer["details"]["slot_nodes"]) == 5


def test_the_printed_document_reads_back_exactly(place: Place) -> None:
    for scheduler in ("even", "top-storm"):
        _, out, _ = place("--json", "--traffic", "traffic.yml", scheduler=scheduler)
        assert to_json(parse_placement_file(out)) == out


def test_text_output_has_tables(place: Place) -> None:
    status, out, err = place(scheduler="top-storm")
    assert (status, err) == (0, "")
    assert "wordcount: placed" in out
    assert "split[0-2] spout[0-2]" in out
    assert "nodes used" in out
    assert "not available" in out  # no traffic was given, so no rate is known


def test_traffic_gives_w(place: Place) -> None:
    _, out, _ = place("--json", "--traffic", "traffic.yml")
    slots = {a["executor"]: a["node"] for a in json.loads(out)["topologies"]["wordcount"]["assignments"]}
    expected = 10.5 * (slots["spout[0]"] != slots["split[3]"]) + 2 * (slots["split[3]"] != slots["count[1]"])
    assert json.loads(out)["cost"]["inter_node_tuples_per_s"] == expected


LOADS: dict[str, Any] = {
    "source": "declared",
    "operation_ns": 2.0,
    "topology": {
        "id": "chain",
        "workers": 1,
        "components": [
            {"id": "source", "kind": "spout"},
            {"id": "work", "kind": "bolt", "parallelism": 2, "inputs": [{"from": "source"}]},
        ],
    },
    "components": {
        "source": {"operations": 100, "outputs": {"default": {"selectivity": 1, "bytes": 100}}},
        "work": {"operations": 500_000},
    },
}
"""A load document: a row costs 1 ms in `work`."""


def test_loads_of_a_load_document_are_derived_for_every_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("load.json").write_text(json.dumps(LOADS))
    Path("c.yml").write_text("nodes: [{id: m, cpu: 400}, {id: n, cpu: 400}]")
    base = ["place", "--cluster", "c.yml", "--load", "load.json"]
    assert run([*base, "--rate", "1500", "--compare", "even,optimal", "--json"]) == 0
    even, optimal = json.loads(capsys.readouterr().out)
    assert even["traffic"] == optimal["traffic"] == "derived"
    # The two executors of `work` have 75 points each, the source has 0.03.
    assert [each["cost"]["overloaded_workers"] for each in (even, optimal)] == [1, 0]
    assert [each["cost"]["undetermined_workers"] for each in (even, optimal)] == [0, 0]
    assert run([*base, "--rate", "1500", "--scheduler", "even", "--explain"]) == 0
    shown = capsys.readouterr().out
    assert "150.0, 3 executors" in shown
    assert "Rates and loads are derived (rate, selectivities, costs), not measured." in shown


def test_a_load_document_without_a_rate_needs_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("load.json").write_text(json.dumps(LOADS))
    base = ["place", "--cluster", "loopback", "--scheduler", "even", "--json"]
    assert run([*base, "--load", "load.json"]) == 2
    assert "load.json:1: components.source: rows_per_s is missing; give the rate of all" in capsys.readouterr().err
    Path("load.json").write_text(
        json.dumps(LOADS).replace('"operations": 100,', '"operations": 100, "rows_per_s": 50,')
    )
    assert run([*base, "--load", "load.json"]) == 0
    assert json.loads(capsys.readouterr().out)["topologies"].keys() == {"chain"}
    for wrong, words in {
        "--rate 5 --topology wordcount": "--rate is the rate of a load document",
        "--load load.json --traffic t.yml": "give one of the two",
        "": "Missing option '--topology' (or '--load')",
    }.items():
        assert run([*base, *wrong.split()]) == 2
        assert words in capsys.readouterr().err


def test_several_topologies_are_one_round_in_the_order_given(place: Place) -> None:
    _, out, _ = place("--topology", "other.yml", "--topology", "wc.yml", "--json", cluster="small.yml")
    topologies = json.loads(out)["topologies"]
    assert list(topologies) == ["other", "wordcount"]
    assert topologies["other"]["status"] == "placed"
    assert topologies["other"]["message"] == "5 workers were asked for, there are slots for 2"
    assert topologies["wordcount"]["status"] == "failed"
    assert topologies["wordcount"]["message"] == "no free slot: 28 executors wait"
    assert topologies["wordcount"]["assignments"] == []
    assert len(topologies["wordcount"]["unassigned"]) == 28


def test_no_free_slot_is_shown_in_text_with_status_0(place: Place) -> None:
    Path("none.yml").write_text("nodes: [{id: n1, slots: 0}]")
    status, out, _ = place(cluster="none.yml")
    assert status == 0
    assert "wordcount: failed" in out
    assert "no free slot: 28 executors wait" in out


def test_nodes_without_hardware_have_no_power_under_a_scheduler_that_needs_none(place: Place) -> None:
    _, out, _ = place("--json", cluster="small.yml")
    assert json.loads(out)["nodes"] == [
        {"id": "n1", "computing_power": None, "index": None},
        {"id": "n2", "computing_power": None, "index": None},
    ]


def test_parameters_of_the_command_line_override_those_of_a_file(place: Place) -> None:
    Path("p.yml").write_text("{alpha: 0.1, normalise: true}")
    _, out, _ = place("--params-file", "p.yml", "--param", "alpha=0.3", "--json", scheduler="top-storm")
    assert json.loads(out)["params"] == {"alpha": 0.3, "affinity": "group", "normalise": True, "flops": None}


def test_a_topology_may_be_that_of_a_workload_unless_a_file_has_that_name(place: Place) -> None:
    named = json.loads(place("--topology", "wordcount", "--json")[1])
    placed = [entry["executor"] for entry in named["topologies"]["wordcount"]["assignments"]]
    assert placed == [executor.name for executor in load_workload("wordcount", {}).topology().executors]
    Path("wordcount").mkdir()
    assert json.loads(place("--topology", "wordcount", "--json")[1])["topologies"] == named["topologies"]
    Path("wordcount").rmdir()
    Path("wordcount").write_text(WORD_COUNT)
    assert (
        len(json.loads(place("--topology", "wordcount", "--json")[1])["topologies"]["wordcount"]["assignments"]) == 28
    )
    two = place("--topology", "other.yml", "--topology", "exclamation", "--json", scheduler="r-storm")
    assert json.loads(two[1])["topologies"].keys() == {"other", "exclamation"}


@pytest.mark.parametrize("name", plugins(GROUP))
def test_every_workload_has_a_topology_to_place(place: Place, name: str) -> None:
    status, out, err = place("--topology", name, "--json", scheduler="top-storm")
    assert (status, err) == (0, "")
    (placed,) = json.loads(out)["topologies"].values()
    assert placed["status"] == "placed"


def test_errors_about_a_workloads_topology_name_the_workload(place: Place) -> None:
    _, _, err = place("--topology", "wordcount", "--topology", "wc.yml")
    assert "wc.yml:2: id: two topologies are called 'wordcount'" in err
    _, _, err = place("--topology", "wc.yml", "--topology", "wordcount")
    assert "topology of the workload 'wordcount': id: two topologies are called 'wordcount'" in err


def test_a_cycle_is_accepted_where_the_definition_allows_it(place: Place) -> None:
    assert place("--topology", "ring.yml")[0] == 0
    status, out, err = place("--topology", "ring.yml", scheduler="top-storm")
    assert (status, out) == (2, "")
    assert "ring.yml:" in err
    assert "topology 'ring' has a cycle" in err


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {"scheduler": "evne"}, "unknown scheduler 'evne'; did you mean 'even'?"),
        ((), {"cluster": "lopback"}, "lopback: there is no such file or folder, and no inventory of that name; did"),
        (("--topology", "absent.yml"), {}, "absent.yml: there is no such file, and no workload of that name; valid: "),
        (("--topology", "wordcuont"), {}, "wordcuont: there is no such file, and no workload of that name; did you"),
        (("--topology", "."), {}, ".: is a directory, a file was expected"),
        (("--topology", "small.yml"), {}, "small.yml:1: nodes: unknown key 'nodes'"),
        (("--topology", "wc.yml", "--topology", "wc.yml"), {}, "wc.yml:2: id: two topologies are called 'wordcount'; "),
        (("--param", "idle_rebalanc=true"), {}, "unknown parameter 'idle_rebalanc'; did you mean 'idle_rebalance'?"),
        (("--param", "idle_max_moves=-1"), {}, "--param: idle_max_moves: got -1: expected a whole number >= 0"),
        (("--param", "idle_max_moves"), {}, "--param: got 'idle_max_moves', expected KEY=VALUE"),
        (("--params-file", "wc.yml"), {}, "wc.yml:2: id: unknown parameter 'id'"),
        (("--param", "alpha=1.1"), {"scheduler": "top-storm"}, "--param: alpha: got 1.1: expected a number <= 1"),
        ((), {"scheduler": "top-storm", "cluster": "small.yml"}, "small.yml:1: nodes[1]: node 'n2' has no comp"),
        (("--param", "flops=measured"), {"scheduler": "top-storm"}, "nodes[0]: node 'n1' gives no FLOPs per cycle"),
        (("--traffic", "wc.yml"), {}, "wc.yml:2: id: unknown key 'id'"),
        (("--wrong",), {}, "No such option"),
        (
            ("--params-file", "away.yml"),
            {"scheduler": "resource-aware"},
            "away.yml:2: unfavored_nodes[1]: unknown node 'n11'; did you mean 'n1'?",
        ),
        (
            ("--params-file", "own.yml"),
            {"scheduler": "isolation"},
            "own.yml:1: machines.wordcuont: unknown topology 'wordcuont'; did you mean 'wordcount'?",
        ),
        (
            ("--params-file", "apart.yml"),
            {"scheduler": "multitenant"},
            "apart.yml:1: spread.wordcount[1]: topology 'wordcount' has no component 'cuont'; did you mean 'count'?",
        ),
    ],
)  # fmt: skip
def test_wrong_input_is_status_2_with_one_clear_message(
    place: Place, arguments: tuple[str, ...], options: dict[str, str], message: str
) -> None:
    status, out, err = place("--json", *arguments, **options)
    assert (status, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_existing_workers_and_traffic_must_fit_the_topologies(place: Place) -> None:
    cluster = "nodes: [{id: n1}]\nexisting:\n- {topology: wordcount, node: n1, slot: 0, executors: ['splot[0]']}"
    Path("c.yml").write_text(cluster)
    assert (
        "c.yml:3: existing[0].executors[0]: topology 'wordcount' has no executor 'splot[0]'; did you mean"
        in (place(cluster="c.yml")[2])
    )
    Path("c.yml").write_text(cluster.replace("['splot[0]']", "['split[0]', 'split[0]']"))
    assert "existing[0].executors[1]: the executor 'split[0]' of 'wordcount' runs twice" in place(cluster="c.yml")[2]
    Path("c.yml").write_text(cluster.replace("topology: wordcount", "topology: x").replace("splot[0]", "splot"))
    assert "'splot' is not of the form component[index]" in place(cluster="c.yml")[2]
    Path("f.yml").write_text("node_load: {n9: 0.5}")
    status, _, err = place("--traffic", "f.yml")
    assert status == 2
    assert "f.yml:1: node_load.n9: unknown node 'n9'; valid: n1, n2" in err


def test_released_workers_and_migrations_are_part_of_the_answer(place: Place) -> None:
    Path("c.yml").write_text(
        "nodes: [{id: a}, {id: b}]\nexisting:\n"
        + "".join(
            f"- {{topology: wordcount, node: a, slot: {slot}, executors: ['spout[{slot}]']}}\n" for slot in range(3)
        )
    )
    _, out, _ = place("--param", "idle_rebalance=true", "--param", "idle_max_moves=1", "--json", cluster="c.yml")
    answer = json.loads(out)
    assert answer["freed"] == [{"topology": "wordcount", "node": "a", "slot": 2, "executors": ["spout[2]"]}]
    assert answer["migrations"] == [
        {
            "topology": "wordcount",
            "executor": "spout[2]",
            "from": {"node": "a", "slot": 2},
            "to": {"node": "b", "slot": 0},
        }
    ]
    placed = {a["executor"]: (a["node"], a["slot"]) for a in answer["topologies"]["wordcount"]["assignments"]}
    assert placed["spout[2]"] == ("b", 0)
    shown = place("--param", "idle_rebalance=on", cluster="c.yml")[1]
    assert "released: wordcount on a:1, wordcount on a:2" in shown


@pytest.mark.parametrize("scheduler", ["even", "top-storm"])
def test_every_process_gives_the_same_bytes(tmp_path: Path, scheduler: str) -> None:
    (tmp_path / "wc.yml").write_text(WORD_COUNT)
    (tmp_path / "f.yml").write_text(TRAFFIC)
    documents = set()
    for seed in ("0", "1", "4242"):
        done = millrace(
            "place", "--cluster", "loopback", "--topology", "wc.yml", "--traffic", "f.yml", "--scheduler", scheduler,
            "--json", env={"PYTHONHASHSEED": seed}, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert answer["elapsed_s"] > 0
        documents.add(done.stdout.replace(f'"elapsed_s": {json.dumps(answer["elapsed_s"])}', ""))
    assert len(documents) == 1


HEAVY = ("pyspark", "pandas", "pyarrow", "numpy", "scipy", "matplotlib", "rich", "psutil", "jinja2")


def test_nothing_heavy_is_loaded_to_place(tmp_path: Path) -> None:
    (tmp_path / "wc.yml").write_text(WORD_COUNT)
    script = f"""
import sys
from campaign.commands.main import run
status = run("place --cluster loopback --topology wc.yml --scheduler even --json".split())
print(status, [name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "0 []"
    assert json.loads(done.stdout)["scheduler"] == "even"


def test_help_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["place", "--help"]) == 0
    assert "millrace place --cluster loopback --topology wordcount.yml --scheduler even" in capsys.readouterr().out


@pytest.mark.parametrize("scheduler", ["even", "r-storm", "i-scheduler", "local-search"])
def test_more_workers_than_slots_are_noted_once_under_any_scheduler(place: Place, scheduler: str) -> None:
    Path("two.yml").write_text(
        SMALL.replace("}, {", ", memory_mb: 40000, cpu: 4000}, {").replace("}]", ", cpu: 4000}]")
    )
    status, out, _ = place(cluster="two.yml", scheduler=scheduler)
    assert (status, out.count("5 workers were asked for, there are slots for 2")) == (0, 1)
    _, out, _ = place("--json", cluster="two.yml", scheduler=scheduler)
    assert json.loads(out)["topologies"]["wordcount"]["note"] == "5 workers were asked for, there are slots for 2"
    assert to_json(parse_placement_file(out)) == out
    assert "note" not in json.loads(place("--json", scheduler=scheduler)[1])["topologies"]["wordcount"]


def test_slots_with_workers_of_others_and_of_missing_nodes_are_not_counted_and_own_ones_are(place: Place) -> None:
    workers = "\n".join(
        f"- {{topology: {name}, node: {node}, slot: 0, executors: ['{executor}']}}"
        for name, node, executor in (
            ("wordcount", "n1", "spout[0]"),
            ("elsewhere", "n2", "a[0]"),
            ("elsewhere", "n3", "a[1]"),
        )
    )
    nodes = "{id: n1, slots: 2}, {id: n2, slots: 3}, {id: n3, slots: 9, available: false}"
    Path("shared.yml").write_text(f"nodes: [{nodes}]\nexisting:\n{workers}\n")
    _, out, _ = place("--json", cluster="shared.yml")
    placed = json.loads(out)["topologies"]["wordcount"]
    assert placed["note"] == "5 workers were asked for, there are slots for 4"
    Path("shared.yml").write_text(f"nodes: [{nodes.replace('slots: 3', 'slots: 4')}]\nexisting:\n{workers}\n")
    assert "note" not in json.loads(place("--json", cluster="shared.yml")[1])["topologies"]["wordcount"]


def test_a_dry_run_notes_more_workers_than_slots(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    agenda = {
        "name": "few",
        "inventory": "small.yml",
        "workloads": [{"name": "exclamation", "rate": {"kind": "max"}}],
        "schedulers": ["t-storm"],
    }
    Path("few.json").write_text(json.dumps(agenda))
    assert run(["run", "few.json", "--dry-run"]) == 0
    note = "5 workers were asked for, there are slots for 2"
    assert f"exclamation by t-storm (not given: traffic, load; {note}): " in capsys.readouterr().out


def test_why_has_an_alternative_for_every_other_node(place: Place) -> None:
    status, out, _ = place("--why", "split[3]", "--traffic", "traffic.yml")
    assert status == 0
    table = out[out.index("split[3] of wordcount") :]
    status, out, _ = place("--why", "split[3]", "--traffic", "traffic.yml", "--json")
    why = json.loads(out)["why"]
    assert len(why["alternatives"]) == len(json.loads(out)["nodes"]) - 1
    assert all(f" {each['node']} " in table for each in why["alternatives"])
    assert to_json(parse_placement_file(out)) == out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--why", "splat[3]"), "--why: unknown executor 'splat[3]'"),
        (("--why", "split[3]", "--compare", "even"), "--why is about one placement"),
    ],
)
def test_a_wrong_why_is_refused_with_the_reason(place: Place, arguments: tuple[str, ...], reason: str) -> None:
    status, out, err = place(*arguments)
    assert (status, out) == (2, "")
    assert reason in err

"""`place --compare`: a row per scheduler, reasons for refusals, a picture of each placement."""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from package_install import millrace

from campaign.commands.main import run

TOPOLOGY = """
id: wordcount
workers: 3
components:
  - {id: spout, kind: spout, parallelism: 3}
  - {id: "<b>&", kind: bolt, parallelism: 4, inputs: [{from: spout, grouping: shuffle}]}
"""
PLAIN = "nodes: [{id: m, capacity: 4}, {id: n, capacity: 4}, {id: '<o>', capacity: 4, available: false}]"
SVG = "{http://www.w3.org/2000/svg}"

Compare = Callable[..., tuple[int, str, str]]


@pytest.fixture
def compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Compare:
    """Run `place --compare`; return status, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    Path("t.yml").write_text(TOPOLOGY)
    Path("c.yml").write_text(PLAIN)

    def compared(names: str, *arguments: str, cluster: str = "c.yml", topology: str = "t.yml") -> tuple[int, str, str]:
        status = run(["place", "--cluster", cluster, "--topology", topology, "--compare", names, *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return compared


def _rows(out: str) -> dict[str, list[str]]:
    table = out.split("W: rate between nodes")[0]
    cells = [line.split() for line in table.splitlines() if line.split()]
    return {row[0]: row[1:] for row in cells}


def _drawing(path: Path) -> ElementTree.Element:
    return ElementTree.fromstring(path.read_bytes())  # noqa: S314 - our own drawing


def _executors(path: Path) -> Iterator[str]:
    """Titles of the executors in a picture."""
    for title in _drawing(path).iter(f"{SVG}title"):
        if re.fullmatch(r".+\[\d+\]", title.text or ""):
            yield str(title.text)


def test_every_scheduler_has_a_row_or_a_reason(compare: Compare) -> None:
    status, out, err = compare("optimal,top-storm,even")
    assert (status, err) == (0, "")
    rows = _rows(out)
    assert list(rows)[-3:] == ["optimal", "top-storm", "even"]
    assert rows["optimal"][-1] == rows["even"][-1] == "placed"
    assert rows["top-storm"] == ["-"] * 9 + ["cannot"]
    assert "top-storm cannot place this: c.yml:1: nodes[0]: node 'm' gives no FLOPs per cycle" in out
    documents = json.loads(compare("optimal,even", "--json")[1])
    for document in documents:
        cost = document["cost"]
        row = rows[document["scheduler"]]
        assert row[:4] == [
            str(cost[key]) for key in ("inter_node_edges", "inter_worker_edges", "nodes_used", "slots_used")
        ]
        assert row[4] == f"{cost['load_stddev']:.3f}"
    assert (rows["even"][5], rows["optimal"][5]) == ("1", "0")


def test_a_scheduler_that_needs_traffic_gets_its_row(compare: Compare) -> None:
    names = "aniello-online,even"
    _, out, _ = compare(names)
    assert _rows(out)["aniello-online"][-1] == "cannot"
    assert "'aniello-online' needs observed traffic; give a traffic file: --traffic F" in out
    Path("f.yml").write_text('edges: [{from: "spout[0]", to: "<b>&[0]", tuples_per_s: 12.5}]')
    _, out, _ = compare("optimal,even", "--traffic", "f.yml")
    assert _rows(out)["optimal"][0] == "0.0"


def test_overloaded_nodes_are_counted(compare: Compare) -> None:
    Path("tight.yml").write_text("nodes: [{id: m, capacity: 2}, {id: n, capacity: 9}]")
    _, out, _ = compare("even,optimal", cluster="tight.yml")
    assert (_rows(out)["even"][5], _rows(out)["optimal"][5]) == ("1", "0")


def test_overloaded_workers_are_counted_where_loads_are_known(
    compare: Compare, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("wide.yml").write_text("nodes: [{id: m, cpu: 400}, {id: n, cpu: 400}]")
    unknown = _rows(compare("even,optimal", cluster="wide.yml")[1])
    assert (unknown["even"][6], unknown["optimal"][6]) == ("unknown", "unknown")
    Path("loads.yml").write_text(
        "{id: t, workers: 2, components: ["
        "{id: a, kind: spout, parallelism: 3, cpu: 40}, "
        "{id: b, kind: bolt, parallelism: 3, cpu: 40, inputs: [{from: a, grouping: shuffle}]}]}"
    )
    _, out, _ = compare("even,optimal", cluster="wide.yml", topology="loads.yml")
    assert (_rows(out)["even"][5:7], _rows(out)["optimal"][5:7]) == (["0", "2"], ["0", "0"])
    documents = json.loads(compare("even,optimal", "--json", cluster="wide.yml", topology="loads.yml")[1])
    assert [document["cost"]["overloaded_workers"] for document in documents] == [2, 0]
    assert [document["cost"]["overloaded_nodes"] for document in documents] == [0, 0]
    assert documents[0]["best_known"]["gap"] is None
    assert run(["place", "--cluster", "wide.yml", "--topology", "loads.yml", "--scheduler", "even", "--explain"]) == 0
    assert capsys.readouterr().out.count("120, 3 executors") == 2


def test_a_worker_is_overloaded_if_what_is_known_of_it_is_too_much(compare: Compare) -> None:
    Path("wide.yml").write_text("nodes: [{id: m, cpu: 400}, {id: n, cpu: 400}]")
    Path("loads.yml").write_text(
        "{id: t, workers: 2, components: [{id: a, kind: spout}, "
        "{id: b, kind: bolt, parallelism: 5, cpu: 60, inputs: [{from: a, grouping: shuffle}]}]}"
    )
    # A worker has b[0], b[2] and b[4], or the spout and two of the others: 180 and 120 points.
    rows = _rows(compare("even,optimal", cluster="wide.yml", topology="loads.yml")[1])
    assert (rows["even"][6], rows["optimal"][6]) == ("2", "0+")


def test_a_failed_placement_has_no_cost(compare: Compare) -> None:
    Path("none.yml").write_text("nodes: [{id: m, slots: 0}]")
    status, out, _ = compare("even,optimal", cluster="none.yml")
    assert status == 0
    for name in ("even", "optimal"):
        row = _rows(out)[name]
        assert (row[:8], row[-1]) == (["-"] * 8, "failed")
    assert "even, wordcount: no free slot: 7 executors wait" in out


def test_the_gap_to_the_best_known_placement_is_shown_for_plans_within_the_capacities(compare: Compare) -> None:
    Path("wide.yml").write_text("nodes: [{id: m, capacity: 4}, {id: n, capacity: 4}, {id: o, capacity: 4}]")
    names = "even,optimal,er-stream"
    _, out, _ = compare(names, cluster="wide.yml")
    _, optimal, _ = documents = json.loads(compare(names, "--json", cluster="wide.yml")[1])
    best = optimal["cost"]["inter_node_edges"]
    gaps = []
    for document in documents:
        gap = document["cost"]["inter_node_edges"] / best - 1
        gaps.append(gap)
        known = document["best_known"]
        assert (known["w"], known["by"], known["optimal"]) == (best, "optimal", True)
        assert known["gap"] == pytest.approx(gap)
        assert _rows(out)[document["scheduler"]][7] == f"{gap:.1%}"
    assert gaps[0] > gaps[1] == 0
    assert f"Best known placement: W {best}, by optimal; the optimum, proven." in out
    _, out, _ = compare("even", cluster="wide.yml")
    assert f"Best known placement: W {best}, found by a search; the optimum, proven." in out
    Path("tight.yml").write_text("nodes: [{id: m, capacity: 2}, {id: n, capacity: 9}]")
    assert _rows(compare("even", cluster="tight.yml")[1])["even"][7] == "-"
    Path("small.yml").write_text("nodes: [{id: m, capacity: 2}, {id: n, capacity: 3}]")
    assert "No placement within the capacities is known." in compare("even", cluster="small.yml")[1]
    assert json.loads(compare("even", "--json", cluster="small.yml")[1])[0]["best_known"] is None


RACKS = """
nodes:
- {id: m, capacity: 2, rack: a}
- {id: n, capacity: 3, rack: b}
- {id: o, capacity: 3, rack: a}
network:
  links:
  - {from: m, to: n, delay_ms: 3, rate_mbit: 10}
  - {from: o, to: m, delay_ms: 1, rate_mbit: 100}
"""


@pytest.mark.parametrize("objective", ["cost", "busiest-link", "busiest-node"])
def test_the_requested_objective_is_shown_for_every_scheduler(compare: Compare, objective: str) -> None:
    Path("racks.yml").write_text(RACKS)
    arguments = ("even,optimal,local-search,i-scheduler", "--param", f"objective={objective}")
    _, out, _ = compare(*arguments, cluster="racks.yml")
    documents = json.loads(compare(*arguments, "--json", cluster="racks.yml")[1])
    best = min(document["cost"]["objective"] for document in documents[1:])
    for document in documents:
        value = document["cost"]["objective"]
        assert _rows(out)[document["scheduler"]][0] == f"{value:.6g}"
        known = document["best_known"]
        assert (known["w"], known["optimal"]) == (pytest.approx(best), True)
        if known["gap"] is not None:
            assert known["gap"] == pytest.approx(value / best - 1)
    assert "lower_bound" not in documents[0]["cost"] or documents[0]["cost"]["lower_bound"] is None
    assert documents[1]["cost"]["lower_bound"] == documents[1]["cost"]["objective"]
    assert f"Best known placement: {objective} {best:.6g}, by optimal; the optimum, proven." in out


def test_why_shows_the_objective_on_every_other_node(compare: Compare, capsys: pytest.CaptureFixture[str]) -> None:
    Path("racks.yml").write_text(RACKS)
    command = ["place", "--cluster", "racks.yml", "--topology", "t.yml", "--scheduler", "optimal", "--param"]
    assert run([*command, "objective=cost", "--why", "spout[0]"]) == 0
    assert "cost" in capsys.readouterr().out.split("elsewhere")[1].splitlines()[2]
    assert run([*command, "objective=cost", "--why", "spout[0]", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    why = document["why"]
    assert why["w"] == document["cost"]["objective"]
    assert len(why["alternatives"]) == 2
    for each in why["alternatives"]:
        assert each["w"] == pytest.approx(why["w"] + each["change"])


def test_a_missing_delay_is_refused_with_its_line_and_both_nodes(compare: Compare) -> None:
    Path("racks.yml").write_text(RACKS)
    arguments = ("even,optimal", "--param", "objective=cost", "--param", "hops=links")
    status, _, err = compare(*arguments, cluster="racks.yml")
    assert status == 2
    assert "racks.yml:4: nodes[1]: a cost by links needs the delay_ms between 'n' and 'o'" in err
    Path("racks.yml").write_text(RACKS + "  - {from: n, to: o, delay_ms: 4}\n")
    assert compare(*arguments, cluster="racks.yml")[0] == 0


def test_json_is_one_list_and_pictures_are_drawn_only_on_request(compare: Compare) -> None:
    status, out, err = compare("even,top-storm", "--json")
    assert (status, err) == (0, "")
    even, top_storm = json.loads(out)
    assert even["topologies"]["wordcount"]["status"] == "placed"
    assert sorted(top_storm) == ["error", "scheduler"]
    assert not Path("placements").exists()
    _, out, err = compare("even,top-storm", "--json", "--pictures", "p", "--explain")
    assert json.loads(out)[0]["account"]["w"] == even["cost"]["inter_node_edges"]
    assert err == f"picture: {Path('p', 'even.svg')}\n"


def test_numbers_are_never_cut_on_a_narrow_terminal(compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    edges = ", ".join(f'{{from: "spout[0]", to: "<b>&[{at}]", tuples_per_s: 123456789012.5}}' for at in range(4))
    Path("f.yml").write_text(f"edges: [{edges}]")
    w = json.loads(compare("even", "--traffic", "f.yml", "--json")[1])[0]["cost"]["inter_node_tuples_per_s"]
    assert w > 0  # four executors on one of two nodes
    row = _rows(compare("even", "--traffic", "f.yml")[1])["even"]
    assert row[0] == f"{w:.1f}"
    assert row[-1] == "placed"


def test_the_scheduler_of_its_own_option_comes_first_unless_it_is_listed(compare: Compare) -> None:
    _, out, _ = compare("even,optimal", "--scheduler", "default", "--json")
    assert [document["scheduler"] for document in json.loads(out)] == ["default", "even", "optimal"]
    _, out, _ = compare("even,optimal", "--scheduler", "optimal", "--json")
    assert [document["scheduler"] for document in json.loads(out)] == ["even", "optimal"]


def test_parameters_go_to_the_schedulers_that_have_them(compare: Compare) -> None:
    Path("p.yml").write_text("{seed: 5, theta: 0}")
    _, out, _ = compare("even,i-scheduler,optimal", "--params-file", "p.yml", "--param", "seed=7", "--json")
    even, i_scheduler, optimal = json.loads(out)
    assert "seed" not in even["params"]
    assert (i_scheduler["params"]["seed"], i_scheduler["params"]["theta"]) == (7, 0)
    assert optimal["params"]["seed"] == 7


def test_pictures_show_every_executor_in_its_place(compare: Compare) -> None:
    _, out, _ = compare("even,optimal")
    assert re.findall(r"^picture: (.+)$", out, re.MULTILINE) == [
        str(Path("placements", f"{name}.svg")) for name in ("even", "optimal")
    ]
    wanted = sorted([f"spout[{at}]" for at in range(3)] + [f"<b>&[{at}]" for at in range(4)])
    for name in ("even", "optimal"):
        path = Path("placements", f"{name}.svg")
        assert sorted(_executors(path)) == wanted
        text = path.read_text()
        assert "prefers-color-scheme:dark" in text
        assert not re.search(r"""(?:href|src)=|url\(|<script|@import""", text)  # complete in itself
        assert "&lt;o&gt;" in text


def test_widths_of_lines_show_traffic_on_one_scale_for_all_pictures(compare: Compare) -> None:
    Path("c.yml").write_text("nodes: [{id: m, capacity: 6}, {id: n, capacity: 4}]")
    _, out, _ = compare("even,optimal", "--json", "--pictures", "p")
    widths = {}
    for document in json.loads(out):
        root = _drawing(Path("p", f"{document['scheduler']}.svg"))
        (line,) = [path for path in root.iter(f"{SVG}path") if path.find(f"{SVG}title") is not None]
        title = line.find(f"{SVG}title")
        assert title is not None
        assert title.text == f"m and n: {document['cost']['inter_node_edges']}"
        widths[document["scheduler"]] = (document["cost"]["inter_node_edges"], float(line.attrib["stroke-width"]))
    assert widths["even"][0] > widths["optimal"][0]
    assert widths["even"][1] > widths["optimal"][1]
    assert widths["even"][1] == pytest.approx(10.0)


def test_every_process_draws_the_same_bytes(compare: Compare, tmp_path: Path) -> None:
    drawn = set()
    for seed in ("0", "4242"):
        done = millrace(
            "place", "--cluster", "c.yml", "--topology", "t.yml", "--compare", "even,i-scheduler", "--pictures", seed,
            env={**os.environ, "PYTHONHASHSEED": seed}, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        drawn.add(tuple(path.read_bytes() for path in sorted((tmp_path / seed).iterdir())))
    assert len(drawn) == 1
    assert len(next(iter(drawn))) == 2


def test_names_that_xml_cannot_write_do_not_break_the_picture(compare: Compare) -> None:
    Path("odd.yml").write_text('nodes: [{id: "a\\u0001", capacity: 9}, {id: "b", capacity: 9}]')
    assert compare("even", cluster="odd.yml")[0] == 0
    assert len(list(_executors(Path("placements/even.svg")))) == 7


def test_large_placements_are_drawn_by_component(compare: Compare) -> None:
    Path("big.yml").write_text(TOPOLOGY.replace("parallelism: 4", "parallelism: 4000").replace("<b>&", "bolt"))
    nodes = ", ".join(f"{{id: n{at}}}" for at in range(300))
    Path("many.yml").write_text(f"nodes: [{nodes}]")
    compare("even", topology="big.yml", cluster="many.yml")
    text = Path("placements/even.svg").read_text()
    assert "x bolt" in text
    assert "297 nodes are not drawn" in text
    assert len(text) < 1_000_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("even,evne",), "unknown scheduler 'evne'; did you mean 'even'?"),
        (("even,,optimal",), "--compare: got 'even,,optimal': a name is missing"),
        (("even,even",), "--compare: 'even' is named twice"),
        (("even,optimal", "--param", "sed=1"), "--param: sed: unknown parameter 'sed'; did you mean 'seed'?"),
        (("even,optimal", "--param", "seed=x"), "--param: seed: got"),
        (("even", "--params-file", "list.yml"), "list.yml:1: a mapping of parameters was expected"),
        (("even", "--pictures", "t.yml"), "--pictures: t.yml: cannot be written: File exists"),
        (("even", "--traffic", "c.yml"), "unknown key 'nodes'"),
    ],
)
def test_wrong_input_is_status_2(compare: Compare, arguments: tuple[str, ...], message: str) -> None:
    Path("list.yml").write_text("[1]")
    status, out, err = compare(*arguments, "--json")
    assert status == 2
    assert message in err
    assert out == "" or "--pictures" in arguments


def test_if_no_scheduler_can_place_the_status_is_that_of_the_first(compare: Compare) -> None:
    assert compare("top-storm")[0] == 2


def test_without_a_scheduler_there_is_nothing_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["place", "--cluster", "loopback", "--topology", "t.yml"]) == 2
    assert "give --scheduler NAME, or --compare NAME,NAME,..." in capsys.readouterr().err
    assert run(["place", "--cluster", "loopback", "--topology", "t", "--scheduler", "even", "--pictures", "p"]) == 2
    assert "--pictures is the folder of --compare" in capsys.readouterr().err

"""Components are scaled while real workers run: the answer stays exact, also when a worker is killed."""

from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from decision_log import FAST_ONLINE, decisions, nodes_over_time

pytestmark = [pytest.mark.loopback, pytest.mark.long]

SIZES = ((3.0, 5), (6.0, 4), (9.0, 5))
KILLED, SOURCES = "killed", "sources"
SOURCE_SIZES = ((4.0, 3), (8.0, 1))
SCHEDULERS: list[Any] = [
    "even",
    {"name": "even", "label": KILLED},
    {"name": "matrix", "online": FAST_ONLINE},
    {"name": "sample-breathing", "params": {"component": "split", "initial": "even"}, "online": FAST_ONLINE},
    {"name": "even", "label": SOURCES},
]
WORKLOAD = {
    "name": "wordcount",
    "params": {"workers": 2, "ackers": 0, "parallelism": {"spout": 2, "split": 2, "count": 4}},
    "rate": {"kind": "constant", "tuples_per_s": 300},
}


@pytest.fixture(scope="module")
def raced(shared_workspace: Any, sample_plugin: Path) -> Any:
    """Workspace with a finished campaign.

    A static run, one with a kill in a scaling, two with online schedulers, and one whose sources are scaled.
    """
    shared_workspace.packages.append(sample_plugin)
    # Events of the same time occur in their order: the worker is killed while the barrier is prepared.
    timeline: list[dict[str, Any]] = [{"at_s": SIZES[1][0], "do": "kill", "worker": "n1/0", "scheduler": KILLED}]
    timeline += [
        {"at_s": at_s, "do": "scale", "component": "count", "to": to, "scheduler": label}
        for at_s, to in SIZES
        for label in ("even", KILLED, "matrix")
    ]
    timeline.append({"at_s": SOURCE_SIZES[0][0], "do": "kill", "worker": "n1/0", "scheduler": SOURCES})
    timeline += [
        {"at_s": at_s, "do": "scale", "component": "spout", "to": to, "scheduler": SOURCES} for at_s, to in SOURCE_SIZES
    ]
    agenda = shared_workspace.agenda(
        duration_s=12, checkpoint_s=1, workloads=[WORKLOAD], schedulers=SCHEDULERS, timeline=timeline, sensors=["cpu"]
    )
    outcome = shared_workspace.run("run", agenda)
    assert outcome.status == 0, outcome
    assert not shared_workspace.processes()
    assert not list(shared_workspace.temporary.iterdir())
    return shared_workspace


def run_of(workspace: Any, number: int) -> tuple[Path, dict[str, Any]]:
    name = next(name for name in workspace.results() if name.startswith(f"{number:03}-"))
    return workspace.campaign / "runs" / name, workspace.results()[name]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_counts_are_exact_with_four_then_five_then_four_executors(raced: Any, number: int) -> None:
    folder, run = run_of(raced, number)
    assert (run["status"], run["attempt"], run["verification"]["status"]) == ("ok", 1, "passed"), run["reason"]
    assert len(run["measured"]["recoveries"]) == (number == 2)
    scalings = run["measured"]["scalings"]
    assert [(each["component"], each["before"], each["after"]) for each in scalings] == [
        ("count", 4, 5),
        ("count", 5, 4),
        ("count", 4, 5),
    ]
    assert {each["how"] for each in scalings} == {"live"}
    assert [each["added"].keys() for each in scalings] == [{"count[4]"}, set(), {"count[4]"}]
    assert all(each["at_s"] >= at_s for each, (at_s, _) in zip(scalings, SIZES, strict=True))
    rows = pyarrow.parquet.read_table(folder / "traces" / "event.parquet").to_pylist()
    kinds = [row["kind"] for row in rows]
    assert (kinds.count("scaled"), kinds.count("timeline_scale")) == (3, 3)


@pytest.mark.parametrize("number", [1, 3])
def test_an_added_executor_works_while_it_is_there(raced: Any, number: int) -> None:
    folder, run = run_of(raced, number)
    first, second, third = run["measured"]["scalings"]
    reported = [at_s for at_s, _ in nodes_over_time(folder, run)["count[4]"]]
    assert min(reported) > first["at_s"]
    assert any(first["at_s"] < at_s < second["at_s"] + second["pause_s"] for at_s in reported)
    assert max(reported) > third["at_s"]
    assert not [at_s for at_s in reported if second["at_s"] + second["pause_s"] + 0.5 < at_s < third["at_s"]]


def test_every_scaling_has_its_cost(raced: Any) -> None:
    _, run = run_of(raced, 1)
    costs = run["measured"]["revision_costs"]
    assert [(each["number"], each["scripted"], each["moves"]) for each in costs] == [(n, True, 0) for n in (1, 2, 3)]


def test_an_online_scheduler_scales_and_moves_at_one_barrier(raced: Any) -> None:
    _, run = run_of(raced, 4)
    assert (run["status"], run["attempt"], run["verification"]["status"]) == ("ok", 1, "passed"), run["reason"]
    done = {each["number"]: each for each in run["measured"]["revisions"] if each["outcome"] == "done"}
    scaled = {each["revision"]: each for each in run["measured"]["scalings"]}
    assert done.keys() == scaled.keys() != set()
    assert {(each["component"], abs(each["after"] - each["before"])) for each in scaled.values()} == {("split", 1)}
    moved = {move["revision"] for move in run["measured"]["moves"]}
    assert moved == {number for number, each in done.items() if each["moves"]}


def test_an_online_scheduler_gets_the_running_executors(raced: Any) -> None:
    folder, run = run_of(raced, 3)
    first, second, third = run["measured"]["scalings"]
    log = decisions(folder)
    assert any(("scale", "count") in {(c["kind"], c["component"]) for c in e["observation"]["changes"]} for e in log)
    for each in log:
        at_s = each["observation"]["at_s"]
        five = first["at_s"] + first["pause_s"] < at_s < second["at_s"] or third["at_s"] + third["pause_s"] < at_s
        four = at_s < first["at_s"] or second["at_s"] + second["pause_s"] < at_s < third["at_s"]
        (topology,) = each["problem"]["topologies"]
        (size,) = [c["parallelism"] for c in topology["components"] if c["id"] == "count"]
        assert f"count[{size - 1}]" in each["observation"]["executors"]
        assert not five or size == 5
        assert not four or size == 4


def test_sources_are_scaled_live_and_emit_every_record_once(raced: Any) -> None:
    folder, run = run_of(raced, 5)
    measured = run["measured"]
    assert (run["status"], run["attempt"], run["verification"]["status"]) == ("ok", 1, "passed"), run["reason"]
    scalings = [(each["component"], each["how"], each["before"], each["after"]) for each in measured["scalings"]]
    assert scalings == [("spout", "live", 2, 3), ("spout", "live", 3, 1)]
    assert len(measured["recoveries"]) == 1
    # The rate is that of the agenda, however many sources share it.
    assert measured["due_tuples_per_s"] == pytest.approx(300, rel=0.05)
    times = {name: [at_s for at_s, _ in rows] for name, rows in nodes_over_time(folder, run).items()}
    larger, smaller = measured["scalings"]
    assert min(times["spout[2]"]) > larger["at_s"]
    assert max(times["spout[2]"]) < smaller["at_s"] + smaller["pause_s"] + 0.5
    assert max(times["spout[0]"]) > smaller["at_s"] + smaller["pause_s"]

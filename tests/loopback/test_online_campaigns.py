"""Campaigns with a third-party scheduler that revises the placement: live, by restarts, as a shadow, or not at all.

The scheduler moves executors in turn, whatever it observes, so that its decisions are known in advance.
"""

import json
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from decision_log import decisions, nodes_over_time, outcomes, table

pytestmark = [pytest.mark.long, pytest.mark.loopback]

STATIC, LIVE, SHADOW, KEPT, NEW = (
    f"{number:03}-sample-numbers-{label}-r1"
    for number, label in enumerate(("static", "live", "shadow", "kept", "new"), 1)
)
TURNS = ["numbers[0]", "numbers[1]", "total[0]"]
LIMIT = 3000
WAIT_S = 0.3


FREQUENT = {"window_s": 1, "first_s": 2.5, "ask_s": 2}
"""Rhythm of the runs with restarts, which take a second or more on a busy host."""


def carousel(label: str, rhythm: Mapping[str, Any], **revision: Any) -> dict[str, Any]:
    online = {**rhythm, "revision": {"settle_s": 0.5, **revision}}
    return {"name": "sample-carousel", "label": label, "online": online}


@pytest.fixture(scope="module")
def raced(shared_workspace: Any, sample_plugin: Path) -> Any:
    """Workspace with a finished campaign; sources end after ten seconds, with the same tuples in every run."""
    shared_workspace.packages.append(sample_plugin)
    agenda = shared_workspace.agenda(
        warmup_s=1,
        duration_s=12,
        checkpoint_s=1,
        workloads=[
            {
                "name": "sample-numbers",
                "params": {"limit": LIMIT},
                "rate": {"kind": "constant", "tuples_per_s": 300},
            }
        ],
        schedulers=[
            {"name": "sample-first-fit", "label": "static"},
            carousel("live", {}),
            carousel("shadow", {}, how="shadow"),
            carousel("kept", FREQUENT, how="restart"),
            carousel("new", FREQUENT, how="restart", processes="new", wait_s=WAIT_S),
        ],
    )
    outcome = shared_workspace.run("run", agenda)
    assert outcome.status == 0, outcome
    assert not shared_workspace.processes()
    assert not list(shared_workspace.temporary.iterdir())
    return shared_workspace


def folder(workspace: Any, run: str) -> Path:
    return Path(workspace.campaign) / "runs" / run


@pytest.mark.parametrize("name", [LIVE, KEPT, NEW])
def test_every_revision_is_carried_out_and_the_answer_stays_exact(raced: Any, name: str) -> None:
    run = raced.results()[name]
    assert (run["status"], run["verification"]["status"], run["attempt"]) == ("ok", "passed", 1)
    assert run["measured"]["recoveries"] == []
    revisions, moves = run["measured"]["revisions"], run["measured"]["moves"]
    done = [each for each in revisions if each["outcome"] == "done"]
    assert len(done) >= 2, revisions
    # A revision at the end of the sources is abandoned.
    assert outcomes(run)[: len(done)] == ["done"] * len(done), revisions
    assert outcomes(run)[len(done) :] in ([], ["abandoned"]), revisions
    assert [(move["executor"], move["revision"]) for move in moves] == [
        (TURNS[turn % 3], each["number"]) for turn, each in enumerate(done)
    ]
    for each, move in zip(done, moves, strict=True):
        assert each["at_s"] <= each["begun_s"] <= move["at_s"] <= each["ended_s"]
        assert (each["moves"], each["reason"], each["message"]) == (1, "cut", "")
    nodes = nodes_over_time(folder(raced, name), run)
    for move in moves:
        assert any(node == move["to"].split("/")[0] and at_s >= move["at_s"] for at_s, node in nodes[move["executor"]])
    # An abandoned revision has a cost, too, because its barrier was begun.
    costs = [each["number"] for each in run["measured"]["revision_costs"]]
    assert costs[: len(done)] == [each["number"] for each in done]


@pytest.mark.parametrize("name", [LIVE, KEPT, NEW])
def test_executors_are_where_the_last_decision_placed_them(raced: Any, name: str) -> None:
    log = {each["number"]: each for each in decisions(folder(raced, name))}
    outcome = {each["number"]: each["outcome"] for each in raced.results()[name]["measured"]["revisions"]}
    for number, each in log.items():
        if number + 1 in log and outcome[number] == "done":
            places = {executor: (at["node"], at["slot"]) for executor, at in each["observation"]["executors"].items()}
            places |= {
                move["executor"]: (move["to"]["node"], move["to"]["slot"])
                for move in each["answer"]["revision"]["moves"]
            }
            after = log[number + 1]["observation"]["executors"]
            assert {executor: (at["node"], at["slot"]) for executor, at in after.items()} == places


def test_events_and_run_json_have_the_same_decision_times(raced: Any) -> None:
    rows = pyarrow.parquet.read_table(folder(raced, LIVE) / "traces" / "event.parquet").to_pylist()
    decision_s = {int(row["subject"]): row["value"] for row in rows if row["kind"] == "decision"}
    for each in raced.results()[LIVE]["measured"]["revisions"]:
        assert each["decided_s"] == pytest.approx(decision_s[each["number"]], abs=1e-6)


def test_a_restart_pauses_longer_than_moves_while_tuples_flow(raced: Any) -> None:
    pauses = {
        name: [move["pause_s"] for move in raced.results()[name]["measured"]["moves"] if "abandoned" not in move]
        for name in (LIVE, KEPT, NEW)
    }
    assert max(pauses[LIVE]) < min(pauses[KEPT])
    assert min(pauses[NEW]) > WAIT_S
    assert not any(each["buffered_rows"] for each in raced.results()[KEPT]["measured"]["revision_costs"])


def test_a_restart_keeps_the_processes_of_workers_or_starts_new_ones(raced: Any) -> None:
    started: dict[str, list[str]] = {}
    for name in (LIVE, KEPT, NEW):
        rows = pyarrow.parquet.read_table(folder(raced, name) / "traces" / "event.parquet").to_pylist()
        started[name] = sorted(row["node"] for row in rows if row["kind"] == "worker_started")
    # One worker at the start, and one for the executors that move.
    assert started[LIVE] == started[KEPT] == ["n1", "n2"]
    # Each restart needs a worker on n2, to which the first executor moves.
    assert started[NEW].count("n2") == outcomes(raced.results()[NEW]).count("done")
    assert started[NEW].count("n1") > 1


def test_no_tuple_is_emitted_or_processed_twice_whatever_the_mode(raced: Any) -> None:
    work = {name: work_of(folder(raced, name)) for name in (STATIC, LIVE, SHADOW, KEPT, NEW)}
    assert work[STATIC] == {"numbers[0]": LIMIT // 2, "numbers[1]": LIMIT // 2, "total[0]": LIMIT}
    assert [name for name, found in work.items() if found != work[STATIC]] == []


def work_of(run: Path) -> dict[str, int]:
    """Return executor -> tuples that it emitted and processed in the whole run."""
    found: Counter[str] = Counter()
    for row in pyarrow.parquet.read_table(run / "traces" / "throughput.parquet").to_pylist():
        found[row["executor"]] += row["emitted"] + (row["processed"] or 0)
    return dict(found)


def test_a_shadow_makes_the_same_decisions_and_does_not_change_the_run(raced: Any) -> None:
    static, shadow = (raced.results()[run] for run in (STATIC, SHADOW))
    assert set(outcomes(shadow)) == {"shadow"}
    assert [each["text"] for each in shadow["measured"]["revisions"]][:4] == [
        f"it is the turn of {TURNS[turn % 3]}" for turn in range(len(outcomes(shadow)))
    ][:4]
    for name, run in ((STATIC, static), (SHADOW, shadow)):
        assert (run["measured"]["moves"], run["measured"]["revision_costs"]) == ([], [])
        assert {node for found in nodes_over_time(folder(raced, name), run).values() for _, node in found} == {"n1"}
    assert shadow["placement"]["topologies"] == static["placement"]["topologies"]
    assert not (folder(raced, STATIC) / "decisions.jsonl").exists()


@pytest.mark.parametrize("run", [STATIC, LIVE, SHADOW, KEPT, NEW])
def test_all_modes_give_the_same_answer(raced: Any, run: str) -> None:
    assert table(folder(raced, run), "total") == [{"name": "all", "sum": LIMIT * (LIMIT - 1) // 2}]


@pytest.mark.parametrize("run", [LIVE, SHADOW])
def test_a_scheduler_is_called_in_its_own_rhythm(raced: Any, run: str) -> None:
    observations = [each["observation"] for each in decisions(folder(raced, run))]
    assert len(observations) >= 2
    assert all(each["complete"] and each["missing"] == [] for each in observations)
    assert [each["samples"] for each in observations] == [2] * len(observations)
    times = [each["at_s"] for each in observations]
    assert times[0] >= 3
    assert all(each["at_s"] - each["since_s"] == pytest.approx(2, abs=0.5) for each in observations)
    assert all(after - before > 1.5 for before, after in pairwise(times))


def test_a_replay_repeats_its_decisions_exactly(raced: Any) -> None:
    log = folder(raced, LIVE) / "decisions.jsonl"
    texts = [each["answer"]["text"] for each in decisions(folder(raced, LIVE))]
    again = raced.run("revise", "--replay", str(log))
    assert again.status == 0, again
    lines_of = [[line for line in again.out.splitlines() if text in line] for text in texts]
    assert all(lines_of), again
    head, *lines = log.read_text().splitlines()
    changed = json.loads(lines[1])
    changed["answer"]["revision"]["moves"][0]["to"] = changed["answer"]["revision"]["moves"][0]["from"]
    other = raced.folder / "other.jsonl"
    other.write_text("\n".join([head, lines[0], json.dumps(changed), *lines[2:]]) + "\n")
    refused = raced.run("revise", "--replay", str(other))
    assert (refused.status, "other.jsonl:3" in refused.err) == (1, True), refused

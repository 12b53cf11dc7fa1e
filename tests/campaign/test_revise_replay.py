"""`millrace revise --replay`: decisions of schedulers in separate processes, repeated byte for byte."""

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from observed_rounds import ObservedCluster, nodes, observed, past_revision, rates_of, round_at
from problems import chain

from campaign.commands.main import run
from campaign.place.revise import DecisionReplay
from controller.coordinator.decider import Answer, Decider
from scheduler.deciding import SchedulerInFile, encode_answer
from scheduler.online.observation import Observation, problem_at
from scheduler.online.replanner import Replan
from scheduler.problem import Problem

Rounds = Sequence[tuple[Problem, Observation] | str]


def record_decisions(path: Path, scheduler: SchedulerInFile, rounds: Rounds) -> list[Answer]:
    """Let a scheduler decide in its process, and record it at `path`; a text in `rounds` resets the scheduler."""

    async def main() -> list[Answer]:
        decider = Decider(scheduler, path, path.with_suffix(".log"), 60)
        answers = []
        try:
            for each in rounds:
                if isinstance(each, str):
                    await decider.reset(each)
                else:
                    answers.append(await decider.ask(*each))
        finally:
            await decider.close()
        return answers

    return asyncio.run(main())


def skewed() -> Rounds:
    """Windows of a chain whose first placement sends most tuples between nodes."""
    first, second = observed(60), observed(120, history=[past_revision(61)])
    return [(round_at(first), first), (round_at(second), second)]


def overloaded(windows: int = 12) -> Rounds:
    """Windows of a topology with an overloaded node, which er-stream changes; its memory decides when."""
    topology = chain(2, 3, 2, names="sbk")
    names = [executor.name for executor in topology.executors]
    simulated = ObservedCluster(
        nodes(4, slots=1, capacity=None, cores=1, frequencies_hz=(1_200_000_000, 2_400_000_000)),
        topology,
        dict(zip(names, ["n1", "n1", "n1", "n1", "n2", "n3", "n3"], strict=True)),
        dict(zip(names, [30.0, 25.0, 20.0, 17.0, 20.0, 10.0, 9.0], strict=True)),
        rates_of({"s0-b0": 200.0, "s1-b1": 150.0, "s0-b2": 40.0, "b0-k0": 90.0, "b1-k1": 80.0, "b2-k0": 30.0}),
        delays=dict.fromkeys(names, 1e-4),
    )
    scheduler = SchedulerInFile("er-stream").make()
    rounds: list[tuple[Problem, Observation]] = []
    for _ in range(windows):
        observation = simulated.window()
        round_ = problem_at(simulated.problem, observation)
        rounds.append((round_, observation))
        simulated.apply_revision(scheduler.revise(round_, observation))
    return rounds


CASES: dict[str, tuple[SchedulerInFile, Callable[[], Rounds]]] = {
    "i-scheduler": (SchedulerInFile("i-scheduler", {"every_s": 30}), skewed),
    "er-stream": (SchedulerInFile("er-stream", {"seed": 7}), overloaded),
    "replan": (SchedulerInFile("local-search", {}, Replan(60, 5)), skewed),
}


@pytest.mark.parametrize("case", CASES)
def test_a_replay_gives_the_same_bytes(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scheduler, rounds = CASES[case]
    path = tmp_path / "decisions.jsonl"
    half = rounds()
    answers = record_decisions(path, scheduler, [*half, "as in a test", *half])
    assert not any(answer.late or answer.fault for answer in answers)
    assert any(answer.revision and answer.revision.changes for answer in answers[: len(half)])
    kept = [msgspec.json.decode(line, type=dict[str, msgspec.Raw]) for line in path.read_bytes().splitlines()[1:]]
    again = [encode_answer(decision.answer) for decision in DecisionReplay(str(path)).decide()]
    assert again == [bytes(line["answer"]) for line in kept if "answer" in line]
    assert len(again) == 2 * len(half)
    assert again[: len(half)] == again[len(half) :]  # the reset has emptied its memory
    assert run(["revise", "--replay", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document[0]["scheduler"] == scheduler.scheduler
    assert len(document) == len(again)


def test_decisions_of_er_stream_depend_on_its_memory() -> None:
    """Otherwise its resets would be untested."""
    (scheduler, rounds), instance = CASES["er-stream"], CASES["er-stream"][0].make()
    questions = [each for each in rounds() if not isinstance(each, str)]
    assert [instance.revise(*each) for each in questions] != [scheduler.make().revise(*each) for each in questions]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("decisions.jsonl")
    record_decisions(path, SchedulerInFile("aniello-online"), [*skewed(), "why"])
    return path


def changed(path: Path, line: int, **changes: Any) -> None:
    lines = path.read_text().splitlines()
    lines[line - 1] = json.dumps({**json.loads(lines[line - 1]), **changes})
    path.write_text("\n".join(lines) + "\n")


def test_questions_without_an_answer_are_left_out(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = kept.read_text().splitlines()
    question = {
        key: value for key, value in json.loads(lines[1]).items() if key in ("number", "problem", "observation")
    }
    kept.write_text("\n".join([lines[0], json.dumps(question), '{"reset": "no answer in 30 s"}', lines[1]]) + "\n")
    assert run(["revise", "--replay", str(kept)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "60 s: cut: 310 -> 90 tuples/s between nodes"


def test_an_answer_that_differs_is_an_error_with_its_line(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed(kept, 3, answer={"revision": None})
    assert run(["revise", "--replay", str(kept)]) == 1
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 4  # also the decision that differs
    assert captured.err == "millrace: decisions.jsonl:3: the scheduler's answer to question 2 differs\n"


def executors(**changes: Any) -> dict[str, Any]:
    return msgspec.to_builtins(observed(60)) | {"executors": changes}


@pytest.mark.parametrize(
    ("line", "changes", "words"),
    [
        (1, {"scheduler": "aniello-onlin"}, "decisions.jsonl:1: scheduler: unknown scheduler 'aniello-onlin'; did you"),
        (1, {"scheduler": "even"}, "decisions.jsonl:1: scheduler: the scheduler 'even' does not revise"),
        (1, {"params": {"capacity": 85}}, "decisions.jsonl:1: params.capacity: unknown parameter 'capacity'"),
        (1, {"replan": {"every_s": 0}}, "decisions.jsonl:1: replan.every_s: got 0"),
        (2, {"number": "x"}, 'decisions.jsonl:2: number: got "x": expected'),
        (2, {"observation": executors()}, "decisions.jsonl:2: observation.executors: the executor 's[0]' is missing"),
        (2, {"answers": None}, "decisions.jsonl:2: answers: unknown key 'answers'; did you mean 'answer'?"),
        (3, {"problem": {"cluster": {"nodes": [{"id": "n1"}]}, "topologies": []}}, "0 topologies, one was expected"),
        (4, {"reset": 5}, "decisions.jsonl:4: reset: got 5: expected text"),
    ],
)
def test_a_wrong_line_is_refused_with_file_line_and_key(
    kept: Path, capsys: pytest.CaptureFixture[str], line: int, changes: dict[str, Any], words: str
) -> None:
    changed(kept, line, **changes)
    assert run(["revise", "--replay", str(kept)]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "decisions.jsonl: is empty"),
        (b"{}\n", "decisions.jsonl:1: the key 'scheduler' is missing"),
        (b'{"scheduler": "t-storm"}\nx\n', "decisions.jsonl:2: not a JSON document"),
        (b'{"scheduler": "t-storm"}\n[1]\n', "decisions.jsonl:2: "),
        (b"\xff\n", "decisions.jsonl: not UTF-8 text"),
        (b"[" * 100_000, "decisions.jsonl:1: not a JSON document"),
    ],
)
def test_a_file_without_decisions_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], content: bytes, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("decisions.jsonl").write_bytes(content)
    assert run(["revise", "--replay", "decisions.jsonl"]) == 2
    assert words in capsys.readouterr().err
    assert run(["revise", "--replay", "missing.jsonl"]) == 2
    assert "missing.jsonl: cannot be read: No such file" in capsys.readouterr().err


def test_a_replay_takes_no_other_input_and_other_input_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["revise", "--replay", "d.jsonl", "--cluster", "c.yml"]) == 2
    assert "--replay has all inputs of a run, so there is no --cluster" in capsys.readouterr().err
    assert run(["revise", "--replay", "d.jsonl", "--param", "a=1"]) == 2
    assert "so there is no --param" in capsys.readouterr().err
    assert run(["revise", "--cluster", "c.yml"]) == 2
    assert "Missing option '--topology'" in capsys.readouterr().err
    assert os.environ.get("PYTHONHASHSEED") in (None, "random")  # processes order sets differently, as in real runs

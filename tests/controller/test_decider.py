"""Client of the decider, with real processes that hang, die, write rubbish, or start slowly."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from observed_rounds import chain, observed, round_at

from controller.coordinator.decider import COMMAND, MOST_LOG_BYTES, Answer, Decider
from inventory.errors import RunError
from scheduler.deciding import KeptDecision, Question, ResetInFile, SchedulerInFile, read_decisions

OBSERVATION = observed(60)
PROBLEM = round_at(OBSERVATION)

HEAD = """
import json, os, subprocess, sys, time
def read(): return json.loads(sys.stdin.readline())
def reply(number, **rest): print(json.dumps({"number": number, "cpu_s": 0.1, **rest}), flush=True)
read(); reply(0)
number = read()["number"]
"""
"""Start of a decider in plain Python, up to its first question."""


def running(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., Any]:
    def with_decider(
        work: Callable[[Decider], Awaitable[Any]], program: str = "", scheduler: str = "aniello-online", **rest: Any
    ) -> Any:
        """Run `work` with a decider, and check that no process is left."""
        command = (sys.executable, "-c", program) if program else COMMAND

        async def main() -> Any:
            decider = Decider(
                SchedulerInFile(scheduler),
                tmp_path / "decisions.jsonl",
                tmp_path / "decider.log",
                command=command,
                **{"deadline_s": 30, **rest},
            )
            pids = set()
            try:
                found = await work(TrackedDecider(decider, pids))  # type: ignore[arg-type]
            finally:
                await decider.close()
            assert not any(map(running, pids))
            return found

        return asyncio.run(main())

    return with_decider


class TrackedDecider:
    """Decider that records the ids of its processes."""

    def __init__(self, decider: Decider, pids: set[int]) -> None:
        self.decider, self.pids = decider, pids

    def __getattr__(self, name: str) -> Any:
        return getattr(self.decider, name)

    async def start(self) -> None:
        await self.decider.start()
        self.pids.add(self.decider.process or 0)


async def once(decider: Decider) -> Answer:
    await decider.start()
    return await decider.ask(PROBLEM, OBSERVATION)


async def twice(decider: Decider) -> tuple[Answer, Answer]:
    return await once(decider), await decider.ask(PROBLEM, OBSERVATION)


def recorded(folder: Path) -> list[Any]:
    return [located.value for located in read_decisions(folder / "decisions.jsonl")]


def test_a_scheduler_in_a_process_answers_as_it_does_in_this_one(ask: Callable[..., Any], tmp_path: Path) -> None:
    answer = ask(once)
    assert answer.revision == SchedulerInFile("aniello-online").make().revise(PROBLEM, OBSERVATION)
    assert answer.revision.changes
    assert answer.cpu_s > 0
    head, decision = recorded(tmp_path)
    assert head == SchedulerInFile("aniello-online")
    assert (decision.problem, decision.observation) == (PROBLEM, OBSERVATION)
    assert (decision.elapsed_s, decision.cpu_s) == (answer.elapsed_s, answer.cpu_s)


def test_a_scheduler_that_does_not_revise_is_a_fault(ask: Callable[..., Any]) -> None:
    async def work(decider: Decider) -> Answer:
        return await decider.ask(PROBLEM, OBSERVATION)

    assert (
        "'even' does not revise running topologies; with `replan` its `place` does" in ask(work, scheduler="even").fault
    )


def test_an_unknown_scheduler_is_an_error_of_the_start(ask: Callable[..., Any]) -> None:
    with pytest.raises(RunError, match="unknown scheduler 'aniello-onlin'; did you mean 'aniello-online'"):
        ask(once, scheduler="aniello-onlin")


def test_a_decider_that_hangs_is_killed_at_the_deadline_with_all_that_it_started(
    ask: Callable[..., Any], tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    program = HEAD + f"open({str(pid)!r}, 'w').write(str(subprocess.Popen(['sleep', '600']).pid)); time.sleep(600)"
    begin_s = time.monotonic()
    answer = ask(once, program, deadline_s=1)
    assert answer.late == "the scheduler gave no answer in 1 s"
    assert 1 <= answer.elapsed_s < 10
    assert time.monotonic() - begin_s < 20
    for _ in range(100):  # its parent is gone; the time until it is reaped varies
        if not running(int(pid.read_text())):
            break
        time.sleep(0.05)
    assert not running(int(pid.read_text()))
    _, decision, reset = recorded(tmp_path)
    assert decision.answer is msgspec.UNSET
    assert reset == ResetInFile(answer.late)


def test_the_log_of_a_scheduler_keeps_its_beginning_and_grows_no_further_than_its_bound(
    ask: Callable[..., Any], tmp_path: Path
) -> None:
    flood = "sys.stderr.write('first words\\n'); [sys.stderr.write('x' * 99 + '\\n') for _ in range(100_000)]"
    program = HEAD + f"{flood}; sys.stderr.flush(); reply(number, answer=dict(revision=None))"
    assert ask(once, program).revision is None
    log = (tmp_path / "decider.log").read_text()
    assert log.startswith("first words\n")
    assert log.endswith("\n[the log ends here: 4 MB]\n")
    assert log.count("the log ends here") == 1
    assert MOST_LOG_BYTES < len(log) < MOST_LOG_BYTES + 100


def test_last_words_of_a_scheduler_that_dies_are_in_its_log(ask: Callable[..., Any], tmp_path: Path) -> None:
    answer = ask(once, HEAD + "sys.stderr.write('no more'); sys.stderr.flush(); os._exit(7)")
    assert "died" in answer.late
    assert (tmp_path / "decider.log").read_text() == "no more"


def test_a_decider_that_reads_nothing_is_late_also_with_large_questions(ask: Callable[..., Any]) -> None:
    program = HEAD.replace("number = read()", "time.sleep(600)")
    many = observed(60, rates={("s[0]", "b[0]"): 1.0} | {(f"s[{n}]", "b[0]"): 1.0 for n in range(30_000)})

    async def work(decider: Decider) -> Answer:
        await decider.start()
        return await decider.ask(PROBLEM, many)

    assert ask(work, program, deadline_s=1).late == "the scheduler gave no answer in 1 s"


def test_after_a_death_the_next_question_has_a_new_process(ask: Callable[..., Any], tmp_path: Path) -> None:
    flag = tmp_path / "died"
    program = (
        HEAD
        + f"""
if not os.path.exists({str(flag)!r}):
    open({str(flag)!r}, "w").close()
    print("out of memory", file=sys.stderr, flush=True)
    os.abort()
reply(number, answer=dict(revision=None))
read()
"""
    )
    first, second = ask(twice, program)
    assert first.late == f"the scheduler's process died; see {tmp_path / 'decider.log'}"
    assert (second.late, second.fault, second.revision) == ("", "", None)
    assert (tmp_path / "decider.log").read_text() == "out of memory\n"
    assert [type(each).__name__ for each in recorded(tmp_path)] == [
        "SchedulerInFile",
        "DecisionInFile",
        "ResetInFile",
        "DecisionInFile",
    ]


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("print('hello'); time.sleep(600)", "wrote rubbish: JSON is malformed: invalid character (byte 0): hello"),
        ("print('[' * 100000); time.sleep(600)", "wrote rubbish"),
        ("sys.stdout.buffer.write(b'\\xff\\xfe\\n'); sys.stdout.flush(); time.sleep(600)", "wrote rubbish"),
        ("print('{}'); time.sleep(600)", "wrote rubbish: Object missing required field `number`"),
        ("reply(number + 1, answer=dict(revision=None)); time.sleep(600)", "answered question 2 instead of 1"),
        ("reply(number); time.sleep(600)", "a reply without an answer"),
        ("reply(number, answer=[1]); time.sleep(600)", "a wrong answer: Expected `object`, got `array`"),
        (
            """slot = dict(node="n1", slot=0)
moves = [dict([("topology", "t"), ("executor", "b"), ("from", slot), ("to", slot)])]
empty = dict(reason="cut", parallelism={}, added={}, frequencies_hz={}, wave=0, schedule=None, expects={})
reply(number, answer=dict(revision=dict(moves=moves, **empty))); time.sleep(600)""",
            "'b' is not of the form component[index]",
        ),
    ],
)
def test_rubbish_is_a_fault_at_once(ask: Callable[..., Any], tmp_path: Path, program: str, words: str) -> None:
    answer = ask(once, HEAD + program.replace("time.sleep", "sys.stdout.flush(); time.sleep"))
    assert words in answer.fault
    assert answer.elapsed_s < 20
    assert isinstance(recorded(tmp_path)[-1], ResetInFile)


def test_megabytes_without_an_end_are_a_fault(ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.coordinator.decider.MOST_REPLY_BYTES", 1 << 20)
    program = HEAD + "\nwhile True: sys.stdout.write('9' * 100_000)"
    keep = Decider._keep

    async def keep_later(self: Decider, question: Sequence[bytes], end: bytes) -> None:
        await asyncio.sleep(0.5)  # more megabytes are waiting unread when the process is killed
        await keep(self, question, end)

    monkeypatch.setattr(Decider, "_keep", keep_later)
    assert ask(once, program).fault == "the scheduler's process wrote more than 1 MB"


@pytest.mark.timeout(30)
def test_a_process_outside_the_session_does_not_delay_the_fault(ask: Callable[..., Any]) -> None:
    program = f"""{HEAD}
print("rubbish", subprocess.Popen(["sleep", "60"], start_new_session=True).pid, flush=True)"""
    answer = ask(once, program)
    os.kill(int(answer.fault.removesuffix("\\n").split()[-1]), signal.SIGKILL)


def test_a_wrong_revision_and_an_exception_are_faults_with_the_scheduler_s_name(
    ask: Callable[..., Any], tmp_path: Path
) -> None:
    program = f"""
import sys
sys.path.insert(0, {str(Path.cwd())!r})
from scheduler.algorithms.aniello_online import AnielloOnline
from scheduler.online.revision import Revision
from scheduler.problem import Move, Slot
from workloads.topology import Executor
times = 0
def revise(self, problem, observation):
    global times
    times += 1
    print("a word for the log")
    if times == 1:
        return Revision("cut", moves=[Move("t", Executor("b", 7), Slot("n1", 0), Slot("n1", 9))])
    return 1 / 0
AnielloOnline.revise = revise
from scheduler.deciding import main
main()
"""
    wrong, broken = ask(twice, program)
    assert "'aniello-online' gave a wrong answer:\n  - moves: unknown executor b[7]" in wrong.fault
    assert "'aniello-online' raised ZeroDivisionError" in broken.fault
    assert (tmp_path / "decider.log").read_text() == "a word for the log\n" * 2
    assert [each.error for each in recorded(tmp_path)[1:]] == [wrong.fault, broken.fault]


def test_a_start_has_a_separate_deadline(ask: Callable[..., Any]) -> None:
    slow = HEAD.replace("read(); reply(0)", "time.sleep(1.5); read(); reply(0)")

    async def work(decider: Decider) -> Answer:
        return await decider.ask(PROBLEM, OBSERVATION)

    answer = ask(work, slow + "reply(number, answer=dict(revision=None)); read()", deadline_s=1)
    assert (answer.late, answer.fault) == ("", "")
    assert ask(work, slow, start_s=0.2).late == "the scheduler gave no answer in 0.2 s"
    with pytest.raises(RunError, match=r"no answer in 0\.2 s"):
        ask(once, slow, start_s=0.2)


def test_a_command_that_does_not_exist_is_a_fault(ask: Callable[..., Any], tmp_path: Path) -> None:
    async def main() -> None:
        decider = Decider(SchedulerInFile("x"), tmp_path / "d", tmp_path / "l", 1, command=("/nowhere/python",))
        with pytest.raises(RunError, match=r"the scheduler's process does not start"):
            await decider.start()
        await decider.close()

    asyncio.run(main())


def test_a_question_that_is_withdrawn_leaves_no_process_and_no_memory(ask: Callable[..., Any], tmp_path: Path) -> None:
    async def work(decider: Decider) -> int | None:
        await decider.start()
        task = asyncio.create_task(decider.ask(PROBLEM, OBSERVATION))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return decider.process

    assert ask(work, HEAD + "time.sleep(600)") is None
    assert recorded(tmp_path)[-1] == ResetInFile("the question was withdrawn")


def test_a_decider_ends_with_its_controller_also_while_it_decides(tmp_path: Path) -> None:
    async def main() -> None:
        program = """
import sys, time
from scheduler.algorithms.aniello_online import AnielloOnline
AnielloOnline.revise = lambda *_: time.sleep(600)
from scheduler.deciding import main
main()
"""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(SchedulerInFile("aniello-online")) + b"\n")
        await asyncio.wait_for(process.stdout.readline(), 60)
        question = {"number": 1, "problem": PROBLEM, "observation": OBSERVATION}
        process.stdin.write(msgspec.json.encode(question) + b"\n")
        await process.stdin.drain()
        await asyncio.sleep(0.3)
        assert process.returncode is None
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), 20) == 0

    asyncio.run(main())


def test_files_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"missing/decisions.jsonl: cannot be written: No such file"):
        Decider(SchedulerInFile("x"), tmp_path / "missing" / "decisions.jsonl", tmp_path / "log", 1)


def test_kept_lines_are_decisions(ask: Callable[..., Any], tmp_path: Path) -> None:
    ask(once)
    _, decision = read_decisions(tmp_path / "decisions.jsonl")
    assert isinstance(decision, KeptDecision)
    line = (tmp_path / "decisions.jsonl").read_bytes().splitlines()[1]
    assert decision.answer is not None
    assert b'"answer":' + decision.answer + b',"elapsed_s":' in line


def test_a_decision_is_recorded_completely_when_it_is_cancelled(ask: Callable[..., Any], tmp_path: Path) -> None:
    write_started, resume = threading.Event(), threading.Event()

    async def work(tracked: TrackedDecider) -> None:
        decider = tracked.decider
        write = decider._write

        def write_slowly(pieces: Sequence[bytes]) -> None:
            write_started.set()
            assert resume.wait(60)
            write(pieces)

        decider._write = write_slowly  # type: ignore[method-assign]
        task = asyncio.create_task(decider.ask(PROBLEM, OBSERVATION))
        await asyncio.to_thread(write_started.wait, 60)
        task.cancel()
        await asyncio.sleep(0)
        resume.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    ask(work)
    _, decision = recorded(tmp_path)
    assert (decision.number, decision.observation) == (1, OBSERVATION)


def test_a_large_question_is_sent_and_kept_like_a_small_one(ask: Callable[..., Any], tmp_path: Path) -> None:
    pairs = [(f"s[{sender}]", f"b[{receiver}]") for sender in range(50) for receiver in range(70)]
    places = {name: "n1/0" for pair in pairs for name in pair} | {"k[0]": "n2/0"}
    observation = observed(60, places, dict.fromkeys(pairs, 1.0))
    problem = round_at(observation, chain(sizes=(50, 70, 1)))
    copy = tmp_path / "question"
    program = f"""
import sys
print('{{"number": 0, "cpu_s": 0}}', flush=True) if sys.stdin.readline() else None
with open({str(copy)!r}, "w") as file: file.write(sys.stdin.readline())
print('{{"number": 1, "cpu_s": 0, "answer": {{"revision": null}}}}', flush=True)
sys.stdin.readline()
"""

    async def work(decider: Decider) -> Answer:
        return await decider.ask(problem, observation)

    assert ask(work, program).fault == ""
    question = msgspec.json.encode(Question(1, problem, observation))
    assert copy.read_bytes() == question + b"\n"
    line = (tmp_path / "decisions.jsonl").read_bytes().splitlines()[1]
    assert line.startswith(question[:-1] + b',"answer":{"revision": null},"elapsed_s":')


CONTROLLER = """
import asyncio, gc, sys
from pathlib import Path
from controller.coordinator.decider import Decider
from scheduler.deciding import SchedulerInFile

async def main():
    files, command = Path(sys.argv[1]), (sys.executable, "-c", sys.argv[2])
    decider = Decider(SchedulerInFile("even"), files / "decisions.jsonl", files / "log", 5, command)
    await decider.start()
    await decider.close()

asyncio.run(main())
gc.collect()
"""

SCHEDULER = """
import json, subprocess, sys
sys.stdin.readline()
subprocess.Popen(["sleep", "3"], start_new_session=True)
print(json.dumps({"number": 0, "cpu_s": 0.1}), flush=True)
sys.stdin.readline()
"""


def test_a_process_that_a_scheduler_leaves_behind_causes_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CONTROLLER, str(tmp_path), SCHEDULER]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert found.stderr == ""

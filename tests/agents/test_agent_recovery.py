"""Runs that restart, grow and lose workers at any time: the agent always reaches the requested state."""

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
import scripted_worker

from agents.collected_traces import collect
from agents.protocol import (
    Abandon,
    Bye,
    Connect,
    Connected,
    Cut,
    Failed,
    Finish,
    Finished,
    Grow,
    Heartbeat,
    Listening,
    Mark,
    Passed,
    Prepare,
    Pulse,
    Ready,
    Slot,
    Start,
    Stored,
)
from controller.host.process_identity import identify, marked

pytestmark = pytest.mark.loopback

MARKER = "MILLRACE_TEST_OF_RECOVERY"
SCRIPT = (sys.executable, scripted_worker.__file__)
SCRIPTED = (
    sys.executable,
    "-P",
    "-c",
    f"import sys; from agents import __main__ as begin; sys.exit(begin.main(command={SCRIPT!r}))",
)
IMPATIENT = (*SCRIPTED[:-1], f"from agents.agent import spawner; spawner.ANSWER_S = 3.0; {SCRIPTED[-1]}")


class ScriptedWorkers:
    """One agent with scripted workers, and the controller's end."""

    def __init__(self, agent: Any, run: Any) -> None:
        self.agent, self._run = agent, run
        agent.welcome()

    def spec(self, epoch: int, slots: Sequence[int], actions: dict[int, str] | None = None, **changes: Any) -> Any:
        script = {str(epoch): {str(slot): action for slot, action in (actions or {}).items()}}
        changes = {"inputs": (), "executors": (), "params": script, **changes}
        return self._run.spec(epoch, workers=tuple(Slot("n1", slot) for slot in slots), **changes)

    def start(self, epoch: int, slots: Sequence[int], actions: dict[int, str] | None = None, **changes: Any) -> None:
        self.agent.send(Start(spec=self.spec(epoch, slots, actions, **changes)))

    def listening(self, epoch: int, slots: Sequence[int]) -> dict[int, int]:
        """Return process ids of these slots' workers, once all listen."""
        pids: dict[int, int] = {}
        while set(pids) != set(slots):
            report = self.agent.expect(Listening, lambda r: r.epoch == epoch)
            assert report.slot not in pids
            pids[report.slot] = report.pid
        return pids

    def started(self, epoch: int, slots: Sequence[int], actions: dict[int, str] | None = None) -> dict[int, int]:
        self.start(epoch, slots, actions)
        return self.listening(epoch, slots)

    def log(self, slot: int) -> list[str]:
        """Return the commands that the workers of a slot received, each with their current epoch."""
        return (self.agent.folder / "run-1" / "logs" / f"worker-{slot}.log").read_text().splitlines()

    def still_answers(self) -> None:
        self.agent.send(Heartbeat(sent_ns=99))
        self.agent.expect(Pulse, lambda p: p.sent_ns == 99)

    def ends_well(self, epoch: int) -> None:
        self.agent.send(Finish(epoch=epoch))
        self.agent.expect(Finished, lambda r: r.epoch == epoch)
        self.agent.send(Bye())
        assert self.agent.wait() == 0


@pytest.fixture
def scripted(start_agent: Callable[..., Any], wordcount: Callable[..., Any]) -> ScriptedWorkers:
    agent = start_agent(command=SCRIPTED)
    return ScriptedWorkers(agent, wordcount(agent))


def test_a_higher_epoch_keeps_workers_that_live_spawns_missing_ones_and_ends_the_others(scripted, gone_within):
    first = scripted.started(1, [0, 1, 2])
    superfluous = identify(first[2])
    os.kill(first[1], signal.SIGKILL)
    failed = scripted.agent.expect(Failed)
    assert (failed.epoch, failed.slot, failed.died) == (1, 1, True)
    second = scripted.started(2, [0, 1, 5])
    assert second[0] == first[0]
    assert second[1] != first[1]
    assert gone_within([superfluous], 10.0)
    assert scripted.log(0) == ["Welcome 0", "Start 0", "Start 1"]
    assert scripted.log(2) == ["Welcome 0", "Start 0", "Finish 1"]
    third = scripted.started(3, [0, 1, 2, 5])
    assert {slot: third[slot] for slot in second} == second
    scripted.ends_well(3)
    assert not [r for r in scripted.agent.reports if isinstance(r, Failed) and r is not failed]


def test_sensors_are_opened_once_per_run(scripted, tmp_path: Path):
    for epoch in (1, 2, 3):
        scripted.agent.send(Start(spec=scripted.spec(epoch, [0]), sensors=("cpu",)))
        scripted.listening(epoch, [0])
    scripted.agent.send(Mark(epoch=3, kind="measure_start"))
    scripted.agent.send(Finish(epoch=3))
    scripted.agent.expect(Finished)
    traces = scripted.agent.folder / "run-1" / "traces"
    assert len(list(traces.glob("n1--1-*.trace"))) == 1
    collect([traces], tmp_path / "collected")
    events = pc.value_counts(_column(tmp_path / "collected" / "event.parquet", "kind")).to_pylist()
    counts = {entry["values"]: entry["counts"] for entry in events}
    assert counts["worker_started"] == counts["measure_start"] == 1


def _column(path: Path, name: str) -> Any:
    import pyarrow.parquet as pq

    return pq.read_table(path)[name]


@pytest.mark.parametrize(
    ("action", "died", "words"),
    [
        ("die", True, "was killed by SIGKILL"),
        ("exit", True, "ended with status 7"),
        ("leave", True, "ended with status 0"),
        ("fail", False, "out of luck"),
    ],
)
def test_only_a_worker_that_ends_without_a_report_counts_as_died(scripted, action, died, words):
    scripted.started(1, [0, 1])
    scripted.agent.send(Mark(epoch=1, kind=f"1 {action}"))
    failed = scripted.agent.expect(Failed)
    assert (failed.epoch, failed.slot, failed.died) == (1, 1, died)
    assert words in failed.reason
    scripted.agent.wait_for(lambda: len(scripted.agent.children()[1]) == 1)
    scripted.still_answers()
    assert [r for r in scripted.agent.reports if isinstance(r, Failed)] == [failed]
    assert set(scripted.started(2, [0, 1])) == {0, 1}
    scripted.ends_well(2)


def test_reports_that_a_worker_sent_before_it_was_killed_precede_its_failure(scripted, gone_within):
    # The helper holds the pipe open; there is no end of file to wait for.
    scripted.started(1, [0])
    scripted.agent.send(Mark(epoch=1, kind="0 leave a helper, speak and die"))
    failed = scripted.agent.expect(Failed)
    assert failed.died
    before = scripted.agent.reports[: scripted.agent.reports.index(failed)]
    assert [r.barrier for r in before if isinstance(r, Stored)] == list(range(1, 2001))
    scripted.agent.wait_for(lambda: not scripted.agent.children()[1])
    scripted.ends_well(1)


@pytest.mark.parametrize("action", ["die", "exit", "leave", "fail"])
def test_a_worker_that_ends_while_it_joins_an_epoch_is_reported_in_that_epoch(scripted, action):
    for slots in ([0, 1], [0, 1, 2]):
        epoch = 2 * len(slots)
        scripted.start(epoch, slots, {slots[-1]: action})
        failed = scripted.agent.expect(Failed)
        assert (failed.epoch, failed.slot, failed.died) == (epoch, slots[-1], action != "fail")
        assert set(scripted.started(epoch + 1, slots)) == set(slots)
    scripted.ends_well(7)


def test_a_worker_that_fails_in_an_epoch_that_is_over_is_replaced_without_a_report(scripted):
    first = scripted.started(1, [0, 1])
    scripted.agent.send(Mark(epoch=1, kind="1 fail late"))
    scripted.start(2, [0, 1])
    kept = scripted.agent.expect(Listening, lambda r: r.epoch == 2)
    assert (kept.slot, kept.pid) == (0, first[0])
    (scripted.agent.folder / "run-1" / "fail").touch()
    replacement = scripted.agent.expect(Listening, lambda r: r.epoch == 2)
    assert replacement.slot == 1
    assert replacement.pid != first[1]
    assert not [r for r in scripted.agent.reports if isinstance(r, Failed)]
    scripted.ends_well(2)


def test_a_worker_that_does_not_end_does_not_delay_the_next_epoch(scripted, gone_within):
    first = scripted.started(1, [0, 1])
    stubborn = identify(first[1])
    scripted.agent.send(Mark(epoch=1, kind="1 stay"))
    assert set(scripted.started(2, [0, 2])) == {0, 2}
    assert stubborn.is_alive()
    # Requested again: its slot is free only after it has ended.
    third = scripted.started(3, [0, 1, 2])
    assert gone_within([stubborn], 0.0)
    assert third[1] != first[1]
    scripted.ends_well(3)


def test_starts_that_overtake_one_another_end_in_the_last_one(scripted):
    for epoch in range(1, 20):
        scripted.start(epoch, [0, 1] if epoch % 3 else [2, 3])
    assert set(scripted.started(20, [1, 2])) == {1, 2}
    scripted.agent.wait_for(lambda: len(scripted.agent.children()[1]) == 2)
    scripted.ends_well(20)


def test_a_run_that_grows_gets_the_new_workers_only(scripted):
    first = scripted.started(1, [0, 1])
    scripted.agent.send(Grow(spec=scripted.spec(1, [0, 1, 2]), at_ns=5))
    third = scripted.listening(1, [2])
    os.kill(first[1], signal.SIGKILL)
    assert scripted.agent.expect(Failed).died
    # The next start replaces the dead worker.
    scripted.agent.send(Grow(spec=scripted.spec(1, [0, 1, 2, 3]), at_ns=5))
    fourth = scripted.listening(1, [3])
    assert len(scripted.agent.children()[1]) == 3
    assert scripted.log(2) == scripted.log(3) == ["Welcome 0", "Grow 0"]
    assert scripted.log(0) == ["Welcome 0", "Start 0"]
    second = scripted.started(2, [0, 1, 2, 3])
    assert (second[0], second[2], second[3]) == (first[0], third[2], fourth[3])
    scripted.ends_well(2)


def test_barriers_are_forwarded_and_the_replies_of_workers_come_back(scripted):
    scripted.started(1, [0, 1])
    scripted.agent.send(Connect(epoch=1, ports={}))
    scripted.agent.expect(Connected)
    scripted.agent.send(Prepare(epoch=1, barrier=11))
    assert {scripted.agent.expect(Ready).tick for _ in range(2)} == {0, 1}
    scripted.agent.send(Abandon(epoch=1, barrier=11))
    scripted.agent.send(Cut(epoch=1, barrier=12, tick=0))
    assert [scripted.agent.expect(Passed).barrier for _ in range(2)] == [12, 12]
    assert scripted.log(1)[-3:] == ["Prepare 1", "Abandon 1", "Cut 1"]
    scripted.ends_well(1)


def test_inputs_that_changed_are_refused_in_the_next_epoch_too(scripted):
    run = scripted._run
    scripted.start(1, [0], inputs=run.spec().inputs)
    worker = scripted.listening(1, [0])
    copy = scripted.agent.folder / "inputs" / run.inputs[0].path.name
    content = copy.read_bytes()
    copy.write_bytes(content.replace(b"be", b"bE", 1))
    scripted.start(2, [0], inputs=run.spec().inputs)
    failed = scripted.agent.expect(Failed)
    assert "'text' differs" in failed.reason
    assert (failed.slot, failed.epoch, failed.died) == (-1, 2, False)
    copy.write_bytes(content)
    scripted.start(3, [0], inputs=run.spec().inputs)
    assert scripted.listening(3, [0]) == worker
    scripted.ends_well(3)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_a_fork_server_that_dies_or_hangs_is_replaced_and_takes_no_worker_with_it(start_agent, wordcount, end):
    agent = start_agent(command=IMPATIENT)
    scripted = ScriptedWorkers(agent, wordcount(agent))
    first = scripted.started(1, [0])
    [server], _workers = scripted.agent.children()
    os.kill(server, end)
    second = scripted.started(2, [0, 1])
    assert second[0] == first[0]
    [other], workers = scripted.agent.children()
    assert other != server
    assert sorted(workers) == sorted(second.values())
    scripted.ends_well(2)


def test_without_a_fork_server_the_run_fails_and_says_why(start_agent, wordcount):
    code = "import sys; from agents.__main__ import main; sys.exit(main(command=(sys.executable, '-c', 'exit(3)')))"
    scripted = ScriptedWorkers(agent := start_agent(command=(sys.executable, "-P", "-c", code)), wordcount(agent))
    scripted.start(1, [0])
    failed = agent.expect(Failed)
    assert "a worker cannot be started: the fork server has ended with status 3" in failed.reason
    assert (failed.slot, failed.died) == (-1, False)
    scripted.ends_well(1)


class Killer:
    """Kills descendants of an agent at random times until it is stopped."""

    def __init__(self, agent: Any, seed: int) -> None:
        self._agent, self._random = agent, random.Random(seed)  # noqa: S311
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._kill_loop)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _kill_loop(self) -> None:
        while not self._stopped.wait(self._random.expovariate(30)):
            servers, workers = self._agent.children()
            # Sometimes the fork server, or a process that it is forking.
            candidates = servers if not workers or self._random.random() < 0.2 else workers
            if candidates:
                with suppress(ProcessLookupError):
                    os.kill(self._random.choice(candidates), signal.SIGKILL)


@pytest.mark.parametrize("seed", range(2))
def test_the_next_start_works_after_random_kills(start_agent, wordcount, seed):
    agent = start_agent(command=SCRIPTED)
    scripted, rng = ScriptedWorkers(agent, wordcount(agent)), random.Random(seed)  # noqa: S311
    killer = Killer(agent, seed)
    epoch = 0
    try:
        # On a fast machine the first starts are over before the first kill.
        while epoch < 40 or not _failures(agent):
            epoch += 1
            slots = sorted(rng.sample(range(6), rng.randint(1, 4)))
            scripted.start(epoch, slots)
            if rng.random() < 0.5:
                # As the controller does: wait until all listen, or one has died.
                _until_all_listen_or_one_died(agent, epoch, len(slots))
    finally:
        killer.stop()
    while True:
        epoch += 1
        scripted.start(epoch, [0, 1, 2])
        if _until_all_listen_or_one_died(agent, epoch, 3):
            break
    assert len(agent.children()[1]) <= 3 + 6
    agent.wait_for(lambda: len(agent.children()[1]) == 3)
    assert all(failed.died or "the fork server has ended" in failed.reason for failed in _failures(agent))
    scripted.ends_well(epoch)


def _failures(agent: Any) -> list[Failed]:
    return [report for report in agent.reports if isinstance(report, Failed)]


def _until_all_listen_or_one_died(agent: Any, epoch: int, workers: int) -> bool:
    """Return whether all listen."""
    for _ in range(workers):
        report = agent.expect(Listening | Failed, lambda r: r.epoch == epoch)
        if isinstance(report, Failed):
            return False
    return True


@pytest.fixture
def marked_agent(start_agent: Callable[..., Any], wordcount: Callable[..., Any]) -> Callable[[int], Any]:
    """Starts an agent whose process and descendants can be found by a number."""

    def start(number: int) -> ScriptedWorkers:
        agent = start_agent(node="n1", command=SCRIPTED, env={MARKER: str(number)})
        return ScriptedWorkers(agent, wordcount(agent))

    return start


@pytest.mark.parametrize("delay_ms", [0, 3, 10, 50])
def test_nothing_is_left_of_an_agent_that_is_killed_while_it_spawns(marked_agent, delay_ms):
    mark = os.getpid() * 1000 + delay_ms
    scripted = marked_agent(mark)
    scripted.started(1, [0])
    scripted.start(2, range(30))
    time.sleep(delay_ms / 1000)
    os.kill(scripted.agent.pid, signal.SIGKILL)
    scripted.agent.wait()
    deadline = time.monotonic() + 10
    while left := marked(f"{MARKER}={mark}".encode()):
        assert time.monotonic() < deadline, left
        time.sleep(0.02)

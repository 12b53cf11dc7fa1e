"""A run that starts again, grows, and loses workers at any moment: the agent always gets it to where it should be."""

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

import puppet
import pyarrow.compute as pc
import pytest

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
SCRIPT = (sys.executable, puppet.__file__)
PUPPETS = (
    sys.executable,
    "-P",
    "-c",
    f"import sys; from agents import __main__ as begin; sys.exit(begin.main(command={SCRIPT!r}))",
)
IMPATIENT = (*PUPPETS[:-1], f"from agents.agent import spawner; spawner.ANSWER_S = 3.0; {PUPPETS[-1]}")


class Puppets:
    """One agent whose workers are puppets, and what the controller knows of them."""

    def __init__(self, agent: Any, run: Any) -> None:
        self.agent, self._run = agent, run
        agent.welcome()

    def spec(self, epoch: int, slots: Sequence[int], deeds: dict[int, str] | None = None, **changes: Any) -> Any:
        does = {str(epoch): {str(slot): deed for slot, deed in (deeds or {}).items()}}
        changes = {"inputs": (), "executors": (), "params": does, **changes}
        return self._run.spec(epoch, workers=tuple(Slot("n1", slot) for slot in slots), **changes)

    def start(self, epoch: int, slots: Sequence[int], deeds: dict[int, str] | None = None, **changes: Any) -> None:
        self.agent.send(Start(spec=self.spec(epoch, slots, deeds, **changes)))

    def listening(self, epoch: int, slots: Sequence[int]) -> dict[int, int]:
        """Process ids of these slots' workers, as soon as all listen."""
        pids: dict[int, int] = {}
        while set(pids) != set(slots):
            report = self.agent.expect(Listening, lambda r: r.epoch == epoch)
            assert report.slot not in pids
            pids[report.slot] = report.pid
        return pids

    def started(self, epoch: int, slots: Sequence[int], deeds: dict[int, str] | None = None) -> dict[int, int]:
        self.start(epoch, slots, deeds)
        return self.listening(epoch, slots)

    def log(self, slot: int) -> list[str]:
        """What the workers of a slot were told, each with the epoch that they were in."""
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
def puppets(start_agent: Callable[..., Any], wordcount: Callable[..., Any]) -> Puppets:
    agent = start_agent(command=PUPPETS)
    return Puppets(agent, wordcount(agent))


def test_a_higher_epoch_keeps_workers_that_live_spawns_missing_ones_and_ends_the_others(puppets, gone_within):
    first = puppets.started(1, [0, 1, 2])
    superfluous = identify(first[2])
    os.kill(first[1], signal.SIGKILL)
    failed = puppets.agent.expect(Failed)
    assert (failed.epoch, failed.slot, failed.died) == (1, 1, True)
    second = puppets.started(2, [0, 1, 5])
    assert second[0] == first[0]
    assert second[1] != first[1]
    assert gone_within([superfluous], 10.0)
    assert puppets.log(0) == ["Welcome 0", "Start 0", "Start 1"]
    assert puppets.log(2) == ["Welcome 0", "Start 0", "Finish 1"]
    third = puppets.started(3, [0, 1, 2, 5])
    assert {slot: third[slot] for slot in second} == second
    puppets.ends_well(3)
    assert not [r for r in puppets.agent.said if isinstance(r, Failed) and r is not failed]


def test_sensors_are_opened_once_per_run(puppets, tmp_path: Path):
    for epoch in (1, 2, 3):
        puppets.agent.send(Start(spec=puppets.spec(epoch, [0]), sensors=("cpu",)))
        puppets.listening(epoch, [0])
    puppets.agent.send(Mark(epoch=3, kind="measure_start"))
    puppets.agent.send(Finish(epoch=3))
    puppets.agent.expect(Finished)
    traces = puppets.agent.folder / "run-1" / "traces"
    assert len(list(traces.glob("n1--1-*.trace"))) == 1
    collect([traces], tmp_path / "collected")
    events = pc.value_counts(_column(tmp_path / "collected" / "event.parquet", "kind")).to_pylist()
    counts = {entry["values"]: entry["counts"] for entry in events}
    assert counts["worker_started"] == counts["measure_start"] == 1


def _column(path: Path, name: str) -> Any:
    import pyarrow.parquet as pq

    return pq.read_table(path)[name]


@pytest.mark.parametrize(
    ("deed", "died", "words"),
    [
        ("die", True, "was killed by SIGKILL"),
        ("exit", True, "ended with status 7"),
        ("leave", True, "ended with status 0"),
        ("fail", False, "out of luck"),
    ],
)
def test_only_a_worker_that_ends_without_a_word_has_died(puppets, deed, died, words):
    puppets.started(1, [0, 1])
    puppets.agent.send(Mark(epoch=1, kind=f"1 {deed}"))
    failed = puppets.agent.expect(Failed)
    assert (failed.epoch, failed.slot, failed.died) == (1, 1, died)
    assert words in failed.reason
    puppets.agent.wait_for(lambda: len(puppets.agent.children()[1]) == 1)
    puppets.still_answers()
    assert [r for r in puppets.agent.said if isinstance(r, Failed)] == [failed]
    assert set(puppets.started(2, [0, 1])) == {0, 1}
    puppets.ends_well(2)


def test_all_that_a_worker_said_before_it_was_killed_comes_before_its_death(puppets, gone_within):
    # The helper holds the pipe open, so there is no end of file to wait for.
    puppets.started(1, [0])
    puppets.agent.send(Mark(epoch=1, kind="0 leave a helper, speak and die"))
    failed = puppets.agent.expect(Failed)
    assert failed.died
    before = puppets.agent.said[: puppets.agent.said.index(failed)]
    assert [r.barrier for r in before if isinstance(r, Stored)] == list(range(1, 2001))
    puppets.agent.wait_for(lambda: not puppets.agent.children()[1])
    puppets.ends_well(1)


@pytest.mark.parametrize("deed", ["die", "exit", "leave", "fail"])
def test_a_worker_that_ends_on_its_way_into_an_epoch_is_reported_in_that_epoch(puppets, deed):
    for slots in ([0, 1], [0, 1, 2]):
        epoch = 2 * len(slots)
        puppets.start(epoch, slots, {slots[-1]: deed})
        failed = puppets.agent.expect(Failed)
        assert (failed.epoch, failed.slot, failed.died) == (epoch, slots[-1], deed != "fail")
        assert set(puppets.started(epoch + 1, slots)) == set(slots)
    puppets.ends_well(7)


def test_a_worker_that_fails_in_an_epoch_that_is_over_is_replaced_without_a_word(puppets):
    first = puppets.started(1, [0, 1])
    puppets.agent.send(Mark(epoch=1, kind="1 fail late"))
    puppets.start(2, [0, 1])
    kept = puppets.agent.expect(Listening, lambda r: r.epoch == 2)
    assert (kept.slot, kept.pid) == (0, first[0])
    (puppets.agent.folder / "run-1" / "fail").touch()
    made = puppets.agent.expect(Listening, lambda r: r.epoch == 2)
    assert made.slot == 1
    assert made.pid != first[1]
    assert not [r for r in puppets.agent.said if isinstance(r, Failed)]
    puppets.ends_well(2)


def test_a_worker_that_will_not_end_does_not_hold_up_the_next_epoch(puppets, gone_within):
    first = puppets.started(1, [0, 1])
    stubborn = identify(first[1])
    puppets.agent.send(Mark(epoch=1, kind="1 stay"))
    assert set(puppets.started(2, [0, 2])) == {0, 2}
    assert stubborn.is_alive()
    # Wanted again: its slot is free only when it is gone.
    third = puppets.started(3, [0, 1, 2])
    assert gone_within([stubborn], 0.0)
    assert third[1] != first[1]
    puppets.ends_well(3)


def test_starts_that_overtake_one_another_end_in_the_last_one(puppets):
    for epoch in range(1, 20):
        puppets.start(epoch, [0, 1] if epoch % 3 else [2, 3])
    assert set(puppets.started(20, [1, 2])) == {1, 2}
    puppets.agent.wait_for(lambda: len(puppets.agent.children()[1]) == 2)
    puppets.ends_well(20)


def test_a_run_that_grows_gets_the_new_workers_only(puppets):
    first = puppets.started(1, [0, 1])
    puppets.agent.send(Grow(spec=puppets.spec(1, [0, 1, 2]), at_ns=5))
    third = puppets.listening(1, [2])
    os.kill(first[1], signal.SIGKILL)
    assert puppets.agent.expect(Failed).died
    # The dead one is for the next start to replace.
    puppets.agent.send(Grow(spec=puppets.spec(1, [0, 1, 2, 3]), at_ns=5))
    fourth = puppets.listening(1, [3])
    assert len(puppets.agent.children()[1]) == 3
    assert puppets.log(2) == puppets.log(3) == ["Welcome 0", "Grow 0"]
    assert puppets.log(0) == ["Welcome 0", "Start 0"]
    second = puppets.started(2, [0, 1, 2, 3])
    assert (second[0], second[2], second[3]) == (first[0], third[2], fourth[3])
    puppets.ends_well(2)


def test_barriers_are_passed_on_and_what_workers_say_to_them_comes_back(puppets):
    puppets.started(1, [0, 1])
    puppets.agent.send(Connect(epoch=1, ports={}))
    puppets.agent.expect(Connected)
    puppets.agent.send(Prepare(epoch=1, barrier=11))
    assert {puppets.agent.expect(Ready).tick for _ in range(2)} == {0, 1}
    puppets.agent.send(Abandon(epoch=1, barrier=11))
    puppets.agent.send(Cut(epoch=1, barrier=12, tick=0))
    assert [puppets.agent.expect(Passed).barrier for _ in range(2)] == [12, 12]
    assert puppets.log(1)[-3:] == ["Prepare 1", "Abandon 1", "Cut 1"]
    puppets.ends_well(1)


def test_inputs_that_changed_are_refused_in_the_next_epoch_too(puppets):
    run = puppets._run
    puppets.start(1, [0], inputs=run.spec().inputs)
    worker = puppets.listening(1, [0])
    copy = puppets.agent.folder / "inputs" / run.inputs[0].path.name
    content = copy.read_bytes()
    copy.write_bytes(content.replace(b"be", b"bE", 1))
    puppets.start(2, [0], inputs=run.spec().inputs)
    failed = puppets.agent.expect(Failed)
    assert "'text' differs" in failed.reason
    assert (failed.slot, failed.epoch, failed.died) == (-1, 2, False)
    copy.write_bytes(content)
    puppets.start(3, [0], inputs=run.spec().inputs)
    assert puppets.listening(3, [0]) == worker
    puppets.ends_well(3)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_a_fork_server_that_dies_or_hangs_is_replaced_and_takes_no_worker_with_it(start_agent, wordcount, end):
    agent = start_agent(command=IMPATIENT)
    puppets = Puppets(agent, wordcount(agent))
    first = puppets.started(1, [0])
    [server], _workers = puppets.agent.children()
    os.kill(server, end)
    second = puppets.started(2, [0, 1])
    assert second[0] == first[0]
    [other], workers = puppets.agent.children()
    assert other != server
    assert sorted(workers) == sorted(second.values())
    puppets.ends_well(2)


def test_without_a_fork_server_the_run_fails_and_says_why(start_agent, wordcount):
    code = "import sys; from agents.__main__ import main; sys.exit(main(command=(sys.executable, '-c', 'exit(3)')))"
    puppets = Puppets(agent := start_agent(command=(sys.executable, "-P", "-c", code)), wordcount(agent))
    puppets.start(1, [0])
    failed = agent.expect(Failed)
    assert "a worker cannot be started: the fork server has ended with status 3" in failed.reason
    assert (failed.slot, failed.died) == (-1, False)
    puppets.ends_well(1)


class Killer:
    """Kills what lives below an agent, at moments of its own choice, until it is told to stop."""

    def __init__(self, agent: Any, seed: int) -> None:
        self._agent, self._random = agent, random.Random(seed)  # noqa: S311
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._live)
        self._thread.start()

    def stop(self) -> None:
        self._enough.set()
        self._thread.join()

    def _live(self) -> None:
        while not self._enough.wait(self._random.expovariate(30)):
            servers, workers = self._agent.children()
            # Now and then the server, or somebody that it forks just now.
            among = servers if not workers or self._random.random() < 0.2 else workers
            if among:
                with suppress(ProcessLookupError):
                    os.kill(self._random.choice(among), signal.SIGKILL)


@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_killed_whenever_the_next_start_works(start_agent, wordcount, seed):
    agent = start_agent(command=PUPPETS)
    puppets, dice = Puppets(agent, wordcount(agent)), random.Random(seed)  # noqa: S311
    killer = Killer(agent, seed)
    epoch = 0
    try:
        # On a fast machine the first starts are over before anybody is hit.
        while epoch < 40 or not _failures(agent):
            epoch += 1
            slots = sorted(dice.sample(range(6), dice.randint(1, 4)))
            puppets.start(epoch, slots)
            if dice.random() < 0.5:
                # What the controller does: it waits until all listen, or somebody has died.
                _until_all_listen_or_one_died(agent, epoch, len(slots))
    finally:
        killer.stop()
    while True:
        epoch += 1
        puppets.start(epoch, [0, 1, 2])
        if _until_all_listen_or_one_died(agent, epoch, 3):
            break
    assert len(agent.children()[1]) <= 3 + 6
    agent.wait_for(lambda: len(agent.children()[1]) == 3)
    assert all(failed.died or "the fork server has ended" in failed.reason for failed in _failures(agent))
    puppets.ends_well(epoch)


def _failures(agent: Any) -> list[Failed]:
    return [report for report in agent.said if isinstance(report, Failed)]


def _until_all_listen_or_one_died(agent: Any, epoch: int, workers: int) -> bool:
    """Whether all listen."""
    for _ in range(workers):
        report = agent.expect(Listening | Failed, lambda r: r.epoch == epoch)
        if isinstance(report, Failed):
            return False
    return True


@pytest.fixture
def marked_agent(start_agent: Callable[..., Any], wordcount: Callable[..., Any]) -> Callable[[int], Any]:
    """Starts an agent whose process and descendants, wherever they are, can be found by a number."""

    def start(number: int) -> Puppets:
        agent = start_agent(node="n1", command=PUPPETS, env={MARKER: str(number)})
        return Puppets(agent, wordcount(agent))

    return start


@pytest.mark.parametrize("delay_ms", [0, 3, 10, 50])
def test_nothing_is_left_of_an_agent_that_is_killed_while_it_spawns(marked_agent, delay_ms):
    mark = os.getpid() * 1000 + delay_ms
    puppets = marked_agent(mark)
    puppets.started(1, [0])
    puppets.start(2, range(30))
    time.sleep(delay_ms / 1000)
    os.kill(puppets.agent.pid, signal.SIGKILL)
    puppets.agent.wait()
    deadline = time.monotonic() + 10
    while left := marked(f"{MARKER}={mark}".encode()):
        assert time.monotonic() < deadline, left
        time.sleep(0.02)

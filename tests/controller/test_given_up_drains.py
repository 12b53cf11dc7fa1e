"""A topology that does not drain in time: the coordinator gives it up, and says what was left."""

import asyncio

from simulated_runs import FakeNodes

from agents.protocol import Drained, Finish, Progress, Work
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.live_metrics import LiveMetrics
from controller.simulation.virtual_loop import run_in_virtual_time
from inventory.times import NS

LINKS = (("src", "mid"), ("mid", "sink"))


def stopped(within_s: float, kill: bool = False) -> tuple[bool, float, FakeNodes]:
    """Stop a run that does not drain; return whether it did, and how long the stop took in virtual seconds."""

    async def run() -> tuple[bool, float, FakeNodes]:
        nodes = FakeNodes(ControlSettings(checkpoint_s=2))
        async with nodes.coordinator as coordinator:
            start_ns = await coordinator.start()
            await coordinator.wait_until(start_ns + 5 * NS)
            nodes.unanswered.add(Drained)
            if kill:
                asyncio.get_running_loop().call_later(within_s / 2, nodes.kill_worker, next(iter(nodes.workers("n1"))))
            before = asyncio.get_running_loop().time()
            drained = await coordinator.stop(within_s)
            took_s = asyncio.get_running_loop().time() - before
            await coordinator.finish()
        return drained, took_s, nodes

    return run_in_virtual_time(run())


def test_a_topology_that_does_not_drain_in_time_is_given_up() -> None:
    drained, took_s, nodes = stopped(30)
    assert not drained
    assert round(took_s) == 30
    assert nodes.messages(Finish, "n1")
    assert nodes.coordinator.answer == []


def test_the_limit_holds_across_recoveries() -> None:
    drained, took_s, nodes = stopped(30, kill=True)
    assert not drained
    assert round(took_s) == 30
    assert nodes.coordinator.event_log.recoveries


def progress(at_s: float, processed: int, queued: int, behind: int) -> Progress:
    executors = {
        "src[0]": Work(1000, None, None, 0, 0, 0, 1000 - behind, 1000, behind),
        "mid[0]": Work(processed * 5, processed, queued, 0, 0),
        "sink[0]": Work(0, processed * 5, 0, 0, 0),
    }
    return Progress(epoch=1, slot=0, at_ns=round(at_s * NS), emitted=0, sunk=0, executors=executors)


def test_progress_is_the_rows_left_and_the_rate() -> None:
    metrics = LiveMetrics(LINKS)
    metrics.record("n1", progress(10.0, 500, 300, 200), 10.0)
    metrics.record("n1", progress(11.0, 600, 400, 0), 11.0)
    left = metrics.left(11.0)
    assert left.waiting == {"src": 0, "mid": 400, "sink": 0}
    # Each of the 400 rows makes five more for the sink.
    assert left.rows == 400 * 6
    assert left.rows_per_s == 100 * 6
    assert left.seconds == 4.0


def test_what_is_late_at_the_sources_is_left_too() -> None:
    metrics = LiveMetrics(LINKS)
    metrics.record("n1", progress(10.0, 500, 0, 500), 10.0)
    left = metrics.left(10.0)
    assert left.rows == 500 * 6
    assert left.seconds is None
    assert (left.emitted_records, left.due_records) == (500, 1000)

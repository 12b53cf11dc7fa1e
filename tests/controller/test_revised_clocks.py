"""Clocks of a revision: raised before its moves and lowered after them; deviating clocks are recorded."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from observed_rounds import chain, nodes

from controller.coordinator.event_log import EventLog
from controller.coordinator.interfaces import Carried
from controller.coordinator.online_loop import OnlineLoop, OnlineSettings
from controller.coordinator.rescheduling import Carry, RevisionFinished, RevisionSettings
from controller.coordinator.scripted_events import SetCpu
from controller.coordinator.timeline import Timeline
from controller.simulation.virtual_loop import run_in_virtual_time
from inventory.errors import RunError
from scheduler.online.revision import Revision, Rhythm
from scheduler.problem import Problem
from workloads.topology import Executor

LOW, MIDDLE, HIGH = 800_000_000, 1_600_000_000, 2_400_000_000
GREATER = {"parallelism": {"b": 3}, "added": {Executor("b", 2): ("n1", 1)}}
SETTLE_S = 2.0


class ClockLoop:
    """Online loop whose n1 starts at a middle clock; it records actions.

    Attributes:
        actions: (seconds since the start of the revision, clocks that were set or the outcome of its moves).
    """

    def __init__(self, outcome: str = "done", clamped: Mapping[str, str] | None = None) -> None:
        self.actions: list[tuple[float, Any]] = []

        async def set_clocks(clocks: Mapping[str, int | None]) -> Mapping[str, str]:
            self._note(dict(clocks))
            return {node: why for node, why in (clamped or {}).items() if node in clocks}

        async def carry(*_request: Any) -> Carried:
            self._note(outcome)
            await asyncio.sleep(0.5)
            return Carried(outcome, "n2 is lost" if outcome == "abandoned" else "")  # type: ignore[arg-type]

        environment: Any = SimpleNamespace(set_clocks=set_clocks)
        scheduler: Any = SimpleNamespace()
        rules = RevisionSettings(settle_s=SETTLE_S)
        settings = OnlineSettings(scheduler, Rhythm(), rules, Problem(nodes(), (chain(),)), 60, {"n1": MIDDLE})
        self.loop = OnlineLoop(settings, environment, EventLog(lambda *_event: None), carry, set())  # type: ignore[arg-type]

    def _note(self, what: Any) -> None:
        self.actions.append((asyncio.get_running_loop().time() - self._start_s, what))

    def carry_out(self, *revisions: Revision) -> list[RevisionFinished]:
        """Carry out one revision after the other."""

        async def carry_all() -> list[RevisionFinished]:
            found = []
            for number, revision in enumerate(revisions, 1):
                self._start_s = asyncio.get_running_loop().time()
                found.append(await self.loop._carry_out(Carry(number, revision, 0)))
            return [each for each in found if isinstance(each, RevisionFinished)]

        return run_in_virtual_time(carry_all())


def test_a_clock_that_the_timeline_sets_is_a_change_for_schedulers() -> None:
    actions: list[Any] = []

    async def set_cpus(node: str, settings: Mapping[str, Any]) -> None:
        if "turbo" in settings:
            raise RunError("there is no turbo")
        actions.append((node, settings))

    environment: Any = SimpleNamespace(set_cpus=set_cpus)
    listener: Any = SimpleNamespace(changed=lambda *change: actions.append(change))
    recorded: list[Any] = []
    events = [SetCpu(1, "n1", {"max_ghz": 1.2}), SetCpu(2, "n2", {"turbo": True})]
    unused: Any = None
    timeline = Timeline(
        events,
        environment,
        unused,
        EventLog(lambda *event: recorded.append(event[:2])),
        listener,
        unused,
        unused,
        False,
    )

    async def started() -> int:
        return round(asyncio.get_running_loop().time() * 1e9)

    async def run_timeline() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                await timeline.run(started)

    run_in_virtual_time(run_timeline())
    assert actions == [("n1", {"max_ghz": 1.2}), ("clock", "n1")]
    assert recorded == [("timeline_set_cpu", "n1"), ("timeline_set_cpu_failed", "")]


def clocks(more: Mapping[str, Any] | None = None, **frequencies: int | None) -> Revision:
    return Revision("clocks", "by load", frequencies=frequencies, **(more or {}))


def test_clocks_are_raised_first_and_lowered_when_the_moves_have_settled() -> None:
    clocked = ClockLoop()
    (finished,) = clocked.carry_out(clocks(GREATER, n1=HIGH, n2=LOW))
    assert finished.outcome == "done"
    assert clocked.actions == [(0.0, {"n1": HIGH}), (0.0, "done"), (0.5 + SETTLE_S, {"n2": LOW})]


def test_clocks_alone_do_not_wait() -> None:
    clocked = ClockLoop()
    clocked.carry_out(clocks(n1=LOW))
    assert clocked.actions == [(0.0, {"n1": LOW})]


@pytest.mark.parametrize(("more", "begin_s"), [({}, SETTLE_S), (GREATER, 0.5 + 2 * SETTLE_S)])
def test_no_window_reaches_across_a_change_of_clocks(more: Mapping[str, Any], begin_s: float) -> None:
    clocked = ClockLoop()
    before = clocked.loop._monitor.window(0.0)
    clocked.carry_out(clocks(more, n1=LOW))
    after = clocked.loop._monitor.window(10.0)
    assert (dict(before.asked_hz), dict(after.asked_hz)) == ({"n1": MIDDLE}, {"n1": LOW})
    assert after.begin_s - clocked._start_s == pytest.approx(begin_s)
    assert after.version > before.version


def test_no_limit_and_the_clock_of_the_agenda_count_as_the_highest_clock() -> None:
    clocked = ClockLoop()
    clocked.carry_out(clocks(GREATER, n1=None), clocks(GREATER, n1=HIGH), clocks(GREATER, n2=HIGH))
    actions = [what for _, what in clocked.actions]
    assert actions == [{"n1": None}, "done", "done", {"n1": HIGH}, "done", {"n2": HIGH}]


@pytest.mark.parametrize("outcome", ["abandoned", "partial"])
def test_no_clock_is_lowered_when_the_moves_before_it_were_not_made(outcome: str) -> None:
    clocked = ClockLoop(outcome)
    (finished,) = clocked.carry_out(clocks(GREATER, n1=HIGH, n2=LOW))
    assert finished.outcome == outcome
    assert [what for _, what in clocked.actions] == [{"n1": HIGH}, outcome]


@pytest.mark.parametrize("more", [{}, GREATER])
def test_a_clock_that_differs_from_the_request_is_recorded_with_node_and_reason(more: Mapping[str, Any]) -> None:
    clocked = ClockLoop(clamped={"n2": "asked for 800000, got 1200000", "n1": "the agent is gone"})
    (finished,) = clocked.carry_out(clocks(more, n1=HIGH, n2=LOW))
    assert finished.outcome == "unset"
    assert finished.message == "n1: the agent is gone; n2: asked for 800000, got 1200000"
    # All clocks were set nevertheless.
    assert [what for _, what in clocked.actions if what != "done"] == [{"n1": HIGH}, {"n2": LOW}]

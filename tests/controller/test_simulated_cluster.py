"""Simulated clusters: messages in order and with delays, clocks that differ, and runs of many nodes."""

import asyncio
import doctest

from bare_environment import WITHOUT_CONTROL
from simulated_runs import spec_of

from agents.protocol import Finish, Slot
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.simulation import cluster, virtual_loop
from controller.simulation.agents import SimulatedAgents, WorkModel
from controller.simulation.cluster import DAY_NS, MessageQueue, NodeClock, differing_clocks
from controller.simulation.virtual_loop import run_in_virtual_time
from inventory.times import NS


def test_messages_arrive_in_order_after_their_delay_and_those_of_a_broken_connection_never() -> None:
    arrived: list[tuple[float, Finish]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        queue = MessageQueue[Finish](lambda message: arrived.append((loop.time(), message)), 0.5)
        queue.put(Finish(epoch=1))
        queue.clear()
        for epoch in range(2, 40):
            queue.put(Finish(epoch=epoch))
        await asyncio.sleep(0.4)
        queue.put(Finish(epoch=40))
        await asyncio.sleep(10)

    run_in_virtual_time(main())
    assert [message.epoch for _, message in arrived] == list(range(2, 41))
    assert {round(at_s, 6) for at_s, _ in arrived} == {0.5, 0.9}


def test_clocks_of_nodes_differ_by_days_and_drift() -> None:
    clocks = list(differing_clocks(["a", "b", "c"]).values())
    assert min(abs(one.lead_ns - other.lead_ns) for one in clocks for other in clocks if one != other) >= 2 * DAY_NS
    assert len({clock.drift for clock in clocks}) == 3
    assert NodeClock(5 * NS, -0.001).read(1000 * NS) == 1004 * NS


def test_clocks_and_virtual_time_are_as_their_examples_say() -> None:
    for module in (virtual_loop, cluster):
        outcome = doctest.testmod(module)
        assert outcome.attempted
        assert not outcome.failed


def test_thirty_nodes_with_three_hundred_executors_pass_checkpoints() -> None:
    nodes = [f"n{at}" for at in range(30)]
    places = {
        f"{component}[{index}]": Slot(nodes[(3 * index + at) % len(nodes)], at)
        for index in range(100)
        for at, component in enumerate(("src", "mid", "sink"))
    }

    class ManyAgents(SimulatedAgents):
        model = WorkModel(100, 0, 10, 0, 0, 0, 0, {"sink": "counts"})

    async def run() -> SimulatedAgents:
        environment = {**WITHOUT_CONTROL, "place": None, "tables": ("counts",)}
        settings = ControlSettings(checkpoint_s=2)
        simulated = ManyAgents(spec_of(places), settings, differing_clocks(nodes), 0.01, environment)
        async with simulated.coordinator as coordinator:
            start_ns = await coordinator.start()
            await coordinator.wait_until(start_ns + 5 * NS)
            await coordinator.stop()
            await coordinator.finish()
        return simulated

    simulated = run_in_virtual_time(run())
    assert [subject for kind, subject, *_ in simulated.events if kind == "checkpoint"] == ["1", "2"]
    assert set(simulated.coordinator.positions.values()) == {100}
    assert len(simulated.coordinator.answer) == 2 * 100 + 100

"""Revisions of a running topology under kills, lost nodes, broken links and stops: the answer stays correct.

Monitor, state machine, coordinator and the tasks of all workers are real. The scheduler moves executors at random, with
random delays and some time-outs. Links, disks, processes and time are scripted.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Set
from math import inf
from random import Random, randrange

import hypothesis
import pytest
from hypothesis import strategies as st
from msgspec.structs import replace
from problems import nodes_of
from scenarios import NODES, Scenario, run_and_check
from scripted_cluster import ScriptedCluster

from agents.protocol import RunSpec, Slot
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.decider import Answer
from controller.coordinator.interfaces import RestartRules
from controller.coordinator.online_loop import OnlineSettings
from controller.coordinator.rescheduling import RevisionSettings
from controller.coordinator.scripted_events import AskScheduler, KillWorker, NodeDown, NodeUp
from scheduler.online.observation import Observation
from scheduler.online.revision import Revision, Rhythm
from scheduler.problem import Move, Problem

SLOTS = 2

DURATION_FACTOR = 40
"""Duration of these runs, relative to other scenarios."""


class RandomScheduler:
    """A scheduler that moves random executors to random slots at every request."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.requests = 0
        self.closed = False

    async def start(self) -> None:
        await asyncio.sleep(0)

    async def ask(self, problem: Problem, observation: Observation) -> Answer:
        assert not self.closed
        self.requests += 1
        random = self._random
        await asyncio.sleep(random.choice([0.0, 0.05, 0.5]))
        if random.random() < 0.02:
            return Answer(None, 0.05, late="still computing")
        if random.random() < 0.2:
            return Answer(None, 0.0, 0.0)
        (topology,) = problem.topologies
        slots = [Slot(node.id, at) for node in problem.cluster.available for at in range(node.slots)]
        moves = []
        for executor in random.sample(topology.executors, random.randint(1, min(4, len(topology.executors)))):
            source = observation.places[executor.name]
            others = [slot for slot in slots if slot != source]
            if others:
                moves.append(Move(topology.id, executor, source, random.choice(others)))
        return Answer(Revision("cut", "why not", moves, wave=random.choice([0, 1, 2])), 0.0, 0.0)

    async def close(self) -> None:
        self.closed = True


class OnlineScenario(Scenario):
    """A scenario whose placement is revised while it runs."""

    step_s = 0.02

    def __init__(self, random: Random, seed: int, how: str) -> None:
        super().__init__(random, seed)
        self.how = how
        # Slow enough for several reports, a second apart, and for faults between them.
        self.oracle.records, self.oracle.tick_every = random.choice([300, 150]), 0
        self.rate = {"kind": "constant", "tuples_per_s": 30.0}
        self.faults = [(at_s * DURATION_FACTOR, what, phase) for at_s, what, phase in self.faults]
        self.stop_ns = random.choice([random.randint(0, 10**10), 10**12])
        self.scheduler = RandomScheduler(Random(seed))  # noqa: S311 - it must be repeatable
        self.moves = self.moves if random.random() < 0.3 else []
        node = random.choice(NODES)
        self.events = random.choice(
            [
                (),
                (NodeDown(2.0, node), NodeUp(4.0, node)),
                (AskScheduler(1.0), KillWorker(2.0, random.choice(self.places))),
            ]
        )

    def cluster(
        self, spec: RunSpec, place: Callable[[Set[str], Mapping[str, Slot]], Mapping[str, Slot]]
    ) -> ScriptedCluster:
        restart = RestartRules(self.random.choice([0.0, 0.2]), fresh=False) if self.how == "restart" else None
        moves = tuple(sorted(self.moves, key=lambda plan: plan.at_s))
        settings = ControlSettings((), 1.0, (*moves, *self.events), restart=restart)
        online = OnlineSettings(
            self.scheduler,
            Rhythm(window_s=1.0, sample_s=1.0, first_s=0.0, ask_s=0.5),
            RevisionSettings(how=self.how, settle_s=0.1),  # type: ignore[arg-type]
            Problem(nodes_of(**dict.fromkeys(NODES, SLOTS)), (self.oracle.topology,)),
            inf,
            {},
        )
        observed = replace(spec, observed=True)
        return ScriptedCluster(observed, self.oracle.operator, self.limits, settings, NODES, place, online=online)


class Watcher(RandomScheduler):
    """A scheduler that changes nothing, and keeps what it is shown."""

    def __init__(self) -> None:
        super().__init__(Random(0))  # noqa: S311 - it must be repeatable
        self.seen: list[Observation] = []

    async def ask(self, problem: Problem, observation: Observation) -> Answer:
        self.seen.append(observation)
        return Answer(None, 0.0, 0.0)


SILENT, SILENT_S = Slot("n1", 0), (3.0, 7.5)


class SilentWorker(OnlineScenario):
    """A scenario without faults in which one worker reports nothing for some seconds."""

    def __init__(self, seed: int) -> None:
        super().__init__(Random(seed), seed, "live")  # noqa: S311 - it must be repeatable
        self.faults, self.moves, self.events = [], [], (AskScheduler(6.4),)
        self.places = [Slot(NODES[at % 3], 0) for at in range(len(self.places))]
        self.oracle.records, self.stop_ns = 300, 9 * 10**9
        self.scheduler = self.watcher = Watcher()

    def cluster(
        self, spec: RunSpec, place: Callable[[Set[str], Mapping[str, Slot]], Mapping[str, Slot]]
    ) -> ScriptedCluster:
        made = super().cluster(spec, place)
        report = made.progress

        def progress(at: Slot) -> bool:
            is_silent = SILENT_S[0] < asyncio.get_running_loop().time() < SILENT_S[1]
            return not (is_silent and at == SILENT) and report(at)

        made.progress = progress  # type: ignore[method-assign]
        return made


@pytest.mark.parametrize("seed", range(3))
def test_a_silent_worker_is_noticed_though_clocks_of_nodes_differ_by_days(seed: int) -> None:
    scenario = SilentWorker(seed)
    run_and_check(scenario)
    before = [seen for seen in scenario.watcher.seen if seen.at_s < SILENT_S[0]]
    assert before
    assert all(seen.complete and not seen.missing for seen in before)
    assert ("n1/0",) in [seen.missing for seen in scenario.watcher.seen if 6.4 <= seen.at_s < SILENT_S[1]]


@pytest.mark.long
@pytest.mark.parametrize("how", ["live", "restart"])
def test_the_answer_is_correct_whatever_is_revised_or_killed(request: pytest.FixtureRequest, how: str) -> None:
    seed = request.config.getoption("--seed")
    seed = randrange(10**6) if seed is None else seed  # noqa: S311 - any will do
    examples = max(20, request.config.getoption("--scenarios") // 10)
    happened: Counter[str] = Counter()

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        print_blob=False,
        phases=(hypothesis.Phase.generate,),
    )
    @hypothesis.given(st.randoms(use_true_random=False), st.integers(0, 2**32))
    def scenarios(random: Random, number: int) -> None:
        scenario = OnlineScenario(random, number, how)
        happened.update(run_and_check(scenario))
        assert scenario.scheduler.closed

    try:
        scenarios()
    except BaseException as fault:
        fault.add_note(f"again: pytest {__file__} --scenarios {request.config.getoption('--scenarios')} --seed {seed}")
        raise
    assert happened.keys() >= {"decision", "revision", "move", "recovery", "checkpoint"}, happened

"""Checks of an online scheduler: rounds of observing and deciding in a made-up cluster.

First nothing is due, then a node is overloaded, then one is to be emptied, and at the end a component is to have
another number of executors. Every answer is carried out before the next question: executors move, and clocks and
numbers of executors change. Questions and answers are JSON, as between a run and the process of its scheduler.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import get_args, get_type_hints

import msgspec
from msgspec.structs import replace

from campaign.admin.checks.trial import TrialReporter
from inventory.cluster import Cluster, Node
from inventory.errors import MillraceError, nearest
from inventory.values import EnergyModel
from scheduler.deciding import Question, encode_answer, question_in_pieces
from scheduler.online.observation import (
    Change,
    Observation,
    ObservedExecutor,
    ObservedNode,
    ObservedSource,
    ObservedTraffic,
    PairRate,
    PastRevision,
    problem_at,
)
from scheduler.online.revision import AnswerInFile, Revision, Rhythm, in_file, revision_of
from scheduler.online.validation import CheckedOnline, make_online_scheduler
from scheduler.problem import Needs, Problem, Slot
from workloads.scaling import resized
from workloads.topology import Component, Input, Topology

REVISIONS, ENCODING, REPLAY, OBSERVED = "revisions", "encoding", "replay", "observed"

ROUNDS = 6
"""Questions about the same loads: some schedulers act only after several windows."""

POINTS: Mapping[str, float] = {"read": 20.0, "split": 40.0, "count": 20.0}
CLOCKS_HZ = (1_200_000_000, 1_800_000_000, 2_400_000_000)
OVERLOAD, BASE = 0.95, 0.02
"""Load of the overloaded node, and of every node without executors, as shares of its CPU."""


def needs_faults(needs: object) -> Iterator[str]:
    """Yield what is wrong about the class attribute `needs` of a scheduler."""
    if not isinstance(needs, Needs):
        yield f"needs is {type(needs).__name__}, a Needs was expected"
        return
    for name, kind in get_type_hints(Needs).items():
        value, choices = getattr(needs, name), get_args(kind)
        if choices and value not in choices:
            yield f"needs: {name} is {value!r}{nearest(value, choices)}"
        elif not choices and not isinstance(value, kind):
            yield f"needs: {name} is {value!r}, expected {kind.__name__}"


def rhythm_faults(kind: type) -> Iterator[str]:
    """Yield what is wrong about when a scheduler with `revise` is asked."""
    rhythm = getattr(kind, "rhythm", None)
    if not hasattr(kind, "revise"):
        if getattr(kind.needs, "online", False) and rhythm is not None:  # type: ignore[attr-defined]
            yield "it has a rhythm and no revise()"
        return
    if not isinstance(rhythm, Rhythm):
        yield f"rhythm is {type(rhythm).__name__}, a Rhythm was expected, since it has revise()"
        return
    for name in ("window_s", "sample_s", "first_s", "ask_s"):
        value = getattr(rhythm, name)
        if value is None and name in ("first_s", "ask_s"):
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            yield f"rhythm: {name} is {value!r}, expected seconds > 0"


def try_revisions(name: str, reporter: TrialReporter, only_answers: bool) -> None:
    """Report the answers of the online scheduler `name` and, unless `only_answers`, its faults."""
    ready = make_online_scheduler(name, None)
    world = _World(ready)
    questions: list[tuple[str, bytes]] = []
    answers: list[str] = []
    # It is asked without JSON in between, which must make no difference.
    beside = make_online_scheduler(name, None)
    changes = 0
    for number, what in enumerate(world.steps(), 1):
        label = f"{what}, at {world.at_s:g} s"
        observation = world.observation()
        problem = world.problem(observation)
        question = b"".join(question_in_pieces(number, problem, observation)) + b"}"
        with_answer = _Asked(label, reporter)
        answer = with_answer.ask(ready, question)
        reporter.answer(label, answer)
        questions.append((label, question))
        answers.append(answer)
        if not only_answers:
            plain = with_answer.revise(beside, problem, observation)
            if plain != answer:
                reporter.fault(
                    ENCODING, f"{label}: it answers {_short(plain)}, and {_short(answer)} when asked in JSON"
                )
            if b"".join(question_in_pieces(number, problem, observation)) + b"}" != question:
                reporter.fault(OBSERVED, f"{label}: it changes the problem or the observation")
        if not with_answer.is_valid:
            return
        changes += world.carry_out(answer)
    if not only_answers:
        _replay(name, reporter, questions, answers)
    reporter.note(REVISIONS, f"asked {len(questions)} times, it changed something {changes} times")


def _replay(name: str, reporter: TrialReporter, questions: list[tuple[str, bytes]], answers: list[str]) -> None:
    """Ask a new instance the same questions."""
    again = make_online_scheduler(name, None)
    for (label, question), answer in zip(questions, answers, strict=True):
        repeated = _Asked(f"{label}, replayed", reporter).ask(again, question)
        if repeated != answer:
            reporter.fault(REPLAY, f"{label}: a second instance answers {_short(repeated)}, the first {_short(answer)}")
            return


def _short(answer: str) -> str:
    return answer if len(answer) <= 200 else f"{answer[:200]} [...]"


class _Asked:
    """One question; `is_valid` is false after a wrong answer."""

    def __init__(self, label: str, reporter: TrialReporter) -> None:
        self._label, self._reporter = label, reporter
        self.is_valid = True

    def ask(self, ready: CheckedOnline, question: bytes) -> str:
        """Return the answer to a question in JSON."""
        decoded = msgspec.json.decode(question, type=Question)
        return self.revise(ready, decoded.problem, decoded.observation)

    def revise(self, ready: CheckedOnline, problem: Problem, observation: Observation) -> str:
        """Return the answer as JSON, or why there is none."""
        try:
            with self._reporter.call(self._label):
                revision = ready.revise(problem, observation)
            (topology,) = problem.topologies
            return encode_answer(in_file(revision, topology.id)).decode()
        except MillraceError as fault:
            if self.is_valid:
                self._reporter.fault(REVISIONS, f"{self._label}: {fault}")
            self.is_valid = False
            return f"failed: {type(fault).__name__}"


def _cluster() -> Cluster:
    return Cluster(
        tuple(
            Node(
                id=f"n{number}",
                address=f"127.0.0.{number + 1}",
                rack=f"r{number % 2}",
                ghz=2.4,
                flops_per_cycle=8,
                ram_gb=8.0,
                memory_mb=8192.0,
                frequencies_hz=CLOCKS_HZ,
                power=EnergyModel(20.0, 40.0),
            )
            for number in range(1, 5)
        )
    )


def _topology() -> Topology:
    by_word = {"grouping": "fields", "fields": ("word",)}
    components = (
        Component("read", "spout", 2),
        Component("split", "bolt", 4, inputs=(Input("read"),)),
        Component("count", "bolt", 3, inputs=(Input("split", **by_word),)),  # type: ignore[arg-type]
    )
    return Topology("words", components, workers=3)


@dataclass
class _World:
    """A running topology on four nodes, three of which are used at the start.

    Attributes:
        ready: the scheduler; its rhythm and its needs.
        places: executor's name -> slot.
        wanted: component -> number of executors that is wanted.
        factor: executor's name -> its load as a multiple of the usual one.
        clocks: node -> Hz that were asked for.
        emptied: nodes that are to be emptied.
        at_s: end of the last window.
    """

    ready: CheckedOnline
    places: dict[str, Slot] = field(default_factory=dict)
    wanted: dict[str, int] = field(default_factory=dict)
    factor: dict[str, float] = field(default_factory=dict)
    clocks: dict[str, int] = field(default_factory=dict)
    moved_s: dict[str, float] = field(default_factory=dict)
    emptied: set[str] = field(default_factory=set)
    changes: list[Change] = field(default_factory=list)
    history: list[PastRevision] = field(default_factory=list)
    version: int = 0
    at_s: float = 0.0

    def __post_init__(self) -> None:
        self.cluster, self.topology = _cluster(), _topology()
        self.wanted = {component.id: component.parallelism for component in self.topology.components}
        self.places = {e.name: Slot(f"n{at % 3 + 1}", 0) for at, e in enumerate(self.topology.executors)}
        self._rhythm: Rhythm = self.ready.inner.rhythm  # type: ignore[attr-defined]

    def steps(self) -> Iterator[str]:
        """Yield what has happened, one step for each question."""
        for _ in range(ROUNDS):
            self._pass()
            yield "nothing is due"
        mine = [name for name, slot in self.places.items() if slot.node == "n1"] or [*self.places][:3]
        node = self.cluster.by_id[self.places[mine[0]].node]
        more = (OVERLOAD - BASE) * node.cpu_points / sum(self._points(name) for name in mine)
        self.factor = dict.fromkeys(mine, max(1.0, more))
        for _ in range(ROUNDS):
            self._pass()
            yield "a node is overloaded"
        self.factor.clear()
        self.emptied.add("n2")
        self._happen(Change.of(self.at_s + 1, "node_down", "n2"))
        yield "a node is to be emptied"
        self._leave_emptied()
        for _ in range(2):
            self._pass()
            yield "a node is gone"
        self.wanted["count"] += 1
        self._happen(Change.of(self.at_s + 1, "scale", "count", self.wanted["count"]))
        yield "a component is to grow"
        self._grow()
        for _ in range(2):
            self._pass()
            yield "a component has grown"

    def observation(self) -> Observation:
        """Return the last window."""
        executors = {}
        for name, slot in self.places.items():
            points = self._points(name) / self._ratio(slot.node)
            executors[name] = ObservedExecutor(
                node=slot.node,
                slot=slot.index,
                busy=points,
                load=points,
                processed_per_s=100.0,
                emitted_per_s=100.0,
                delay_s=points / 100 / 100,
                state_bytes=1000,
                moved_s=self.moved_s.get(name),
            )
        nodes = {}
        for node in self.cluster.nodes:
            mine = sum(each.load for each in executors.values() if each.node == node.id)
            nodes[node.id] = ObservedNode(
                load=min(2.0, BASE + mine / node.cpu_points),
                base=BASE,
                hz=self._ratio(node.id) * max(CLOCKS_HZ),
                asked_hz=self.clocks.get(node.id),
                heartbeats=1.0,
                available=node.id not in self.emptied,
            )
        pairs = [
            PairRate(source.name, target.name, float(1 + at * 37 % 100), 640.0)
            for at, (source, target) in enumerate(self._running.pairs())
        ]
        return Observation(
            at_s=self.at_s,
            since_s=self.at_s - self._rhythm.window_s,
            samples=max(1, round(self._rhythm.window_s / self._rhythm.sample_s)),
            sample_s=self._rhythm.sample_s,
            version=self.version,
            traffic=ObservedTraffic(tuple(pairs)),
            executors=executors,
            nodes=nodes,
            source=ObservedSource(200.0, 200.0, 0.0),
            changes=tuple(self.changes),
            history=tuple(self.history),
        )

    def problem(self, observation: Observation) -> Problem:
        """Return the round, with what is wanted for schedulers that scale."""
        wanted = resized(self.topology, self.wanted) if self.ready.needs.scales else self._running
        return problem_at(Problem(self.cluster, (wanted,)), observation, wanted=True)

    def carry_out(self, answer: str) -> bool:
        """Do what a valid answer wants; return whether that is anything."""
        revision = revision_of(msgspec.json.decode(answer, type=AnswerInFile))
        self.changes.clear()
        if revision is None or not revision.changes:
            return False
        for move in revision.moves:
            self.places[move.executor.name] = move.target
            self.moved_s[move.executor.name] = self.at_s + 0.5
        for component, size in revision.parallelism.items():
            names = [name for name in self.places if name.partition("[")[0] == component]
            for name in names[size:]:
                del self.places[name]
            self.wanted[component] = size
        self.places |= {executor.name: slot for executor, slot in revision.added.items()}
        for node, hertz in revision.frequencies.items():
            self.clocks.pop(node, None)
            if hertz is not None:
                self.clocks[node] = hertz
        self._remember(revision)
        return True

    def _remember(self, revision: Revision) -> None:
        self.version += 1
        self.history.append(
            PastRevision(
                number=len(self.history) + 1,
                at_s=self.at_s + 0.5,
                reason=revision.reason,
                outcome="done",
                moves=len(revision.moves),
                expects=revision.expects.figures,
            )
        )

    def _pass(self) -> None:
        """Let time pass until the next question."""
        first = self._rhythm.first_s or self._rhythm.window_s
        self.at_s += (self._rhythm.ask_s or self._rhythm.window_s) if self.at_s else max(first, self._rhythm.window_s)

    def _happen(self, change: Change) -> None:
        self._pass()
        self.version += 1
        self.changes.append(replace(change, at_s=self.at_s - self._rhythm.sample_s / 2))

    def _leave_emptied(self) -> None:
        """Move what the scheduler left on nodes that are to be emptied, as a run does."""
        free = [node.id for node in self.cluster.nodes if node.id not in self.emptied]
        for at, (name, slot) in enumerate(self.places.items()):
            if slot.node in self.emptied:
                self.places[name] = Slot(free[at % len(free)], 0)

    def _grow(self) -> None:
        """Add the executors that are wanted and that the scheduler did not add, as a run does."""
        for component, size in self.wanted.items():
            for index in count():
                name = f"{component}[{index}]"
                if index >= size:
                    break
                self.places.setdefault(name, Slot("n1", 0))
        self.places = {e.name: self.places[e.name] for e in resized(self.topology, self.wanted).executors}

    @property
    def _running(self) -> Topology:
        """The topology with the numbers of executors that run."""
        sizes = {each.id: sum(n.partition("[")[0] == each.id for n in self.places) for each in self.topology.components}
        return resized(self.topology, sizes)

    def _points(self, name: str) -> float:
        return POINTS[name.partition("[")[0]] * self.factor.get(name, 1.0)

    def _ratio(self, node: str) -> float:
        """Return the clock of a node as a share of its highest one."""
        return self.clocks.get(node, max(CLOCKS_HZ)) / max(CLOCKS_HZ)

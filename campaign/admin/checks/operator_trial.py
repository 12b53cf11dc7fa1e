"""Trial of a workload's operators in one process: three instances of each, one of which is restored repeatedly.

Components process their input from upstream to downstream, and every interval of stream time ends with its tick, as in
a run. The three instances get the same batches. At random moments the state of one of them is written to bytes and
restored in a new operator, which must emit the same rows as the other two. Where it can be divided by key groups or
copied while the operator works, that is done half of the time. States that merge must do so in any order.
"""

import random
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any
from zlib import crc32

from campaign.admin.checks.restores import Emissions, Rows, divided, merges_in_any_order
from campaign.admin.checks.trial import TrialReporter
from inventory.plugins import as_plain, raised_at
from workloads.key_groups import KeyRouter, codec_bytes, first_owners
from workloads.operator_state import OperatorState
from workloads.operators import Batch, Bolt, Combining, Context, Emitted, Operator, Row, Spout
from workloads.rates import Max
from workloads.scaling import is_divisible
from workloads.source_clock import SourceClock, source_clock
from workloads.topology import ACKER, DEFAULT_STREAM, Executor, Input
from workloads.workload import Answer, PreparedInput, Workload

INPUT, OPERATORS, SNAPSHOT, RESTORE, PURE, ANSWER = "input", "operators", "snapshot", "restore", "purity", "answer"

ROWS, TICKS, MOST_ROWS, MOST_INTERVALS = 2000, 3, 200_000, 400
"""A trial ends after ROWS source rows and TICKS ticks with rows, or after MOST_ROWS rows or MOST_INTERVALS rounds."""

BATCH = 40
RESTORED, SETTLED = 0.25, 0.5
"""Probability of a restore before a call, and of collecting settled rows of the answer at a restore."""

DIVIDED = 0.5
"""Probability that a restore divides or copies the state, if the operator has what that needs."""

GROUPS, MERGE, COPY = "division of the state", "merge of the state", "copy of the state"

SEED = 20


class TrialBrokenError(Exception):
    """A fault that ends the trial; it has been reported."""


MOST_KEYS = 40
"""Most keys that are copied at once, so that a copy takes several pieces."""

FINISHED = 0.2
"""Probability that a copy is finished instead of continued."""


GIVEN = 0.3
"""Part of the keys that the copy gets from the first operator."""


class StateCopy:
    """Copy of state that is under way while its operator works, as in a move; rows may come between any two calls.

    All keys are copied, then those changed since, then the rest. If all state is by key, the two operators share the
    keys at the end, and the copy gets the others from the first operator.

    Attributes:
        target: the operator that gets the state.
    """

    def __init__(self, source: Operator, target: Operator, random: Random) -> None:
        """Begin to copy the state of `source`."""
        self._source, self.target, self._random = OperatorState(source), target, random
        self._copy = OperatorState(target)
        self._changed: set[Any] = set()
        self._source.track(self._changed)
        self._left = self._source.all_keys()

    def proceed(self) -> bool:
        """Copy some state, or the rest of it; return whether that was the rest."""
        if self._random.random() < FINISHED:
            self._source.track(None)
            self._copy.put(self._source.part(self._changed.union(self._left), with_own=True))
            if self._source.is_by_key and not self._source.merges:
                self._share()
            self._copy.loaded()
            return True
        if not self._left:
            self._left = list(self._changed)
            self._changed.clear()
        count = self._random.randint(1, MOST_KEYS)
        keys, self._left = self._left[:count], self._left[count:]
        self._copy.put(self._source.part(keys))
        return False

    def _share(self) -> None:
        given = {key for key in self._copy.all_keys() if self._random.random() < GIVEN}
        self._copy.drop(given)
        self._source.drop([key for key in self._source.all_keys() if key not in given])
        self._copy.absorb(self._source)


class Triplet:
    """Three operators of one executor, the last of which is restored repeatedly."""

    def __init__(self, trial: "OperatorTrial", executor: Executor) -> None:
        self._trial, self.executor = trial, executor
        self.constant, self.control, self.restored = self._opened(), self._opened(), self._opened()
        self.restores = 0
        self._copy: StateCopy | None = None
        self._earlier = b""
        self.settled: dict[str, list[Row]] = {}

    @property
    def operators(self) -> tuple[Operator, Operator, Operator]:
        """The three operators."""
        return self.constant, self.control, self.restored

    @property
    def opened(self) -> Iterable[Operator]:
        """All operators that are open."""
        return self.operators if self._copy is None else (*self.operators, self._copy.target)

    def _opened(self) -> Operator:
        return self._trial.opened(self.executor, self._trial.topology.component[self.executor.component].parallelism)

    def restore(self) -> None:
        """Replace the restored instance with a new operator that restores its state."""
        trial, operator, state = self._trial, self.restored, OperatorState(self.restored)
        if isinstance(operator, Bolt) and trial.random.random() < SETTLED:
            with trial.calling(self.executor, "settled"):
                for table in operator.tables():
                    self.settled.setdefault(table.answer_table, []).extend(table.settled())
        if self._copy is not None:
            self._proceed(self._copy)
        elif state.merges and not self._merges(state.snapshot()):
            trial.fail(RESTORE, f"{self.executor.name}: its answer depends on the order in which states are merged")
        elif state.can_be_copied and trial.random.random() < DIVIDED:
            with trial.calling(self.executor, COPY):
                self._copy = StateCopy(operator, self._opened(), trial.random)
        else:
            self._replace(operator)

    def _merges(self, state: bytes) -> bool:
        """Return whether the state and the last one are merged the same way in either order."""
        earlier, self._earlier = self._earlier or state, state
        with self._trial.calling(self.executor, MERGE):
            return merges_in_any_order(state, earlier, self._opened)

    def _proceed(self, copy: StateCopy) -> None:
        with self._trial.calling(self.executor, COPY):
            if not copy.proceed():
                return
            self.restored.close()
        self.restored, self._copy = copy.target, None
        self.restores += 1

    def _replace(self, operator: Operator) -> None:
        trial = self._trial
        with trial.calling(self.executor, "snapshot"):
            state = OperatorState(operator).snapshot()
        again = self._again(operator, state)
        with trial.calling(self.executor, "close"):
            operator.close()
        self.restored = again
        self.restores += 1

    def _again(self, operator: Operator, state: bytes) -> Operator:
        """Return a new operator with the same state, sometimes divided and added up as for other executors."""
        trial, executor = self._trial, self.executor
        if trial.random.random() < DIVIDED:
            component = trial.topology.component[executor.component]
            if is_divisible(component, OperatorState(operator)):
                with trial.calling(executor, GROUPS):
                    return divided(operator, component, executor.index, self._opened, trial.random)
        with trial.calling(executor, "restore"):
            OperatorState(again := self._opened()).restore(state)
        return again

    def compare(self, one: Rows, control: Rows, restored: Rows) -> None:
        """Compare the rows of the three instances and record them."""
        trial, component = self._trial, self.executor.component
        try:
            trial.emissions.add(component, one)
        except (TypeError, OverflowError) as fault:
            trial.fail(OPERATORS, f"{self.executor.name} emits what cannot be sent: {fault}")
        differences = trial.emissions.differences(component, one, control)
        if differences:
            trial.fail(PURE, f"{self.executor.name}: two instances give {differences} for the same input")
        lost = trial.emissions.lost(component, one, restored)
        if lost:
            after = f"after {self.restores} restores" if self.restores else "in another instance"
            trial.fail(RESTORE, f"{self.executor.name}: {after} {lost}: something is not part of its snapshot")


class OperatorTrial:
    """All executors of a topology, and the batches in flight between them."""

    def __init__(self, workload: Workload, inputs: Sequence[PreparedInput], reporter: TrialReporter) -> None:
        self.workload, self.reporter = workload, reporter
        self.inputs = {entry.name: str(entry.path) for entry in inputs}
        self.random = random.Random(SEED)  # noqa: S311 - repeatable, no secret
        self.topology = workload.topology()
        executors = [e for e in self.topology.executors if e.component != ACKER]
        self.triplets = {executor: Triplet(self, executor) for executor in executors}
        self.combiners = {
            component.id: made
            for component in self.topology.components
            if component.id != ACKER and isinstance(made := workload.operator(component.id), Combining)
        }
        self._in_order = sorted(executors, key=lambda executor: self.topology.order.index(executor.component))
        self.spouts = [e for e in executors if self.topology.component[e.component].kind == "spout"]
        for executor in executors:
            kind = Spout if executor in self.spouts else Bolt
            if not isinstance(self.triplets[executor].constant, kind):
                given = type(self.triplets[executor].constant).__name__
                self.fail(OPERATORS, f"{executor.component}: {given} is no {kind.__name__}")
        self.positions = dict.fromkeys(self.spouts, 0)
        self.ended: set[Executor] = set()
        self.channels: dict[Executor, dict[tuple[Executor, str], deque[list[Row]]]] = {e: {} for e in executors}
        self.emissions = Emissions()

    def calling(self, executor: Executor, what: str) -> "_OperatorCall":
        """Return a context manager for a call of an operator."""
        return _OperatorCall(self, executor, what)

    def opened(self, executor: Executor, parallelism: int) -> Operator:
        """Create and open an operator for one of `parallelism` executors of its component."""
        with self.calling(executor, "open"):
            operator = self.workload.operator(executor.component)
            params = as_plain(self.workload.params)
            operator.open(Context(executor.component, executor.index, parallelism, params, SEED, self.inputs))
        return operator

    def fail(self, check: str, message: str) -> None:
        """Report a fault and end the trial.

        Raises:
            BrokenError: always.
        """
        self.reporter.fault(check, message)
        raise TrialBrokenError(message)

    def run(self) -> None:
        """Process the input."""
        clocks = {
            spout: source_clock(Max(), self._spout(spout), at, len(self.spouts), SEED)
            for at, spout in enumerate(self.spouts)
        }
        first = self._spout(self.spouts[0])
        tick_ns, number = first.tick_ns, first.origin_ns // first.tick_ns + 1 if first.tick_ns else 0
        ticks = 0
        for _ in range(MOST_INTERVALS if not tick_ns else MOST_ROWS):
            emitted = self._emit(clocks, number * tick_ns if tick_ns else None)
            ticks += emitted > 0
            for executor in self._in_order:
                self._process(executor)
                if tick_ns and executor not in self.positions:
                    self._tick(executor, number * tick_ns)
            number += 1
            rows = sum(self.positions.values())
            enough = rows >= ROWS and (not tick_ns or ticks >= TICKS)
            if len(self.ended) == len(self.spouts) or (emitted and (enough or rows >= MOST_ROWS)):
                self._end()
                return

    def _end(self) -> None:
        """End the input of all bolts, from upstream to downstream."""
        for executor in self._in_order:
            self._process(executor)
            if executor not in self.positions:
                self._restore_now_and_then(executor)
                self._pass_on(executor, *self._called(executor, "on_end"))

    def _called(self, executor: Executor, method: str, *arguments: object) -> list[Rows]:
        """Call a method of the three operators; return what each of them emits."""
        given: list[Rows] = []
        for operator in self.triplets[executor].operators:
            with self.calling(executor, method):
                given.append(_kept(getattr(operator, method)(*arguments)))
        return given

    def _spout(self, executor: Executor) -> Spout:
        operator = self.triplets[executor].constant
        if not isinstance(operator, Spout):
            raise TypeError(f"{executor.name} is no spout")
        return operator

    def _emit(self, clocks: Mapping[Executor, SourceClock], before_ns: int | None) -> int:
        """Emit a few rows of each source, or all rows before a tick; return their number."""
        total = 0
        for spout in self.spouts:
            due = self.random.randint(1, BATCH)
            if before_ns is not None:
                due = clocks[spout].stream_count(before_ns) - self.positions[spout]
            while due > 0 and spout not in self.ended:
                count = min(due, self.random.randint(1, 25 * BATCH))
                rows = self._next(spout, count)
                if not rows:
                    self.ended.add(spout)
                    break
                due -= len(rows)
                total += len(rows)
                self.positions[spout] += len(rows)
                self._forward(spout, DEFAULT_STREAM, rows)
            if before_ns is not None and clocks[spout].stream_ns(self.positions[spout]) is None:
                self.ended.add(spout)
        return total

    def _next(self, spout: Executor, count: int) -> list[Row]:
        self._restore_now_and_then(spout)
        given: list[list[Row]] = []
        for operator in self.triplets[spout].operators:
            with self.calling(spout, "next_batch"):
                given.append(list(operator.next_batch(count)))  # type: ignore[attr-defined]  # checked at the start
        if len(given[0]) > count:
            self.fail(OPERATORS, f"{spout.name}: next_batch({count}) gives {len(given[0])} rows")
        self.triplets[spout].compare(*({DEFAULT_STREAM: rows} for rows in given))
        return given[0]

    def _process(self, executor: Executor) -> None:
        waiting = self.channels[executor]
        while waiting:
            channel = self.random.choice(list(waiting))
            rows = waiting[channel].popleft()
            if not waiting[channel]:
                del waiting[channel]
            (sender, stream) = channel
            self._restore_now_and_then(executor)
            given = []
            for operator in self.triplets[executor].operators:
                with self.calling(executor, "process"):
                    given.append(_kept(operator.process(Batch(sender.component, stream, list(rows)))))  # type: ignore[attr-defined]
            self._pass_on(executor, *given)

    def _tick(self, executor: Executor, time_ns: int) -> None:
        self._restore_now_and_then(executor)
        for operator in self.triplets[executor].operators:
            operator.stream_ns = time_ns  # type: ignore[attr-defined]  # a bolt, as checked at the start
        self._pass_on(executor, *self._called(executor, "on_tick", time_ns))

    def _pass_on(self, executor: Executor, one: Rows, control: Rows, restored: Rows) -> None:
        declared = self.topology.component[executor.component].outputs or {}
        for stream, rows in one.items():
            if stream not in declared:
                what = f"{executor.name} emits on {stream!r}, which {executor.component} does not declare"
                self.fail(OPERATORS, what)
            for row in rows:
                if len(row) != len(declared[stream]):
                    fields = ", ".join(declared[stream])
                    self.fail(OPERATORS, f"{executor.name} emits {row!r} on {stream!r}, whose fields are {fields}")
        self.triplets[executor].compare(one, control, restored)
        for stream, rows in one.items():
            self._forward(executor, stream, rows)

    def _restore_now_and_then(self, executor: Executor) -> None:
        if self.random.random() < RESTORED:
            self.triplets[executor].restore()

    def _forward(self, sender: Executor, stream: str, rows: Sequence[Row]) -> None:
        declared = self.topology.component[sender.component].outputs or {}
        for source, destination, entry in self.topology.links():
            if (source.id, entry.stream) != (sender.component, stream) or destination.id == ACKER or not rows:
                continue
            combiner = self.combiners.get(destination.id) if entry.grouping == "fields" else None
            # Sampled rows bypass a combiner.
            cut = self.random.randint(0, len(rows)) if combiner is not None else 0
            dealt = rows
            if combiner is not None and cut:
                with self.calling(Executor(destination.id, 0), "combine"):
                    dealt = [*combiner.combine(rows[:cut]), *rows[cut:]]
            parts = _parts(entry, list(declared[stream]), dealt, destination.parallelism)
            if parts is None:
                self.fail(OPERATORS, f"{sender.name} sends directly to an executor that {destination.id!r} has not")
            for index, part in enumerate(parts or ()):
                waiting = self.channels[Executor(destination.id, index)].setdefault((sender, stream), deque())
                while part:
                    count = self.random.randint(1, 25 * BATCH)
                    waiting.append(part[:count])
                    part = part[count:]
                if not waiting:
                    del self.channels[Executor(destination.id, index)][sender, stream]

    def answer(self) -> Answer:
        """Return the sinks' answer, which must be the same from all three instances."""
        tables: dict[str, list[Row]] = {}
        for executor, triplet in self.triplets.items():
            given: list[dict[str, list[Row]]] = [{}, {}, triplet.settled]
            for operator, answered in zip(triplet.operators, given, strict=True):
                with self.calling(executor, "answer"):
                    for table in operator.tables() if isinstance(operator, Bolt) else ():
                        answered.setdefault(table.answer_table, []).extend([*table.settled(), *table.answer()])
            triplet.compare(*given)
            for name, rows in given[2].items():
                tables.setdefault(name, []).extend(rows)
        return tables

    def close(self) -> None:
        """Close all operators."""
        for executor, triplet in self.triplets.items():
            for operator in triplet.opened:
                with self.calling(executor, "close"):
                    operator.close()


class _OperatorCall:
    """Timed call of an operator; an exception of the operator is reported and ends the trial."""

    def __init__(self, trial: OperatorTrial, executor: Executor, what: str) -> None:
        self._trial, self._executor, self._what = trial, executor, what
        self._call = trial.reporter.call(f"{what} of {executor.name}")

    def __enter__(self) -> None:
        self._call.__enter__()

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: object) -> None:
        if fault is not None and not isinstance(fault, Exception):
            return
        self._call.__exit__(None, None, None)
        if fault is not None:
            made = self._trial.workload.operator(self._executor.component)
            place = raised_at(fault, type(made))
            message = f"{self._what} of {self._executor.name} fails: {type(fault).__name__}: {fault} ({place})"
            is_of_state = self._what in ("snapshot", "restore", GROUPS, MERGE, COPY)
            self._trial.fail(SNAPSHOT if is_of_state else OPERATORS, message)


def _parts(entry: Input, fields: list[str], rows: Sequence[Row], parallelism: int) -> list[list[Row]] | None:
    """Return the rows by receiving executor; None if there is no such executor.

    If any executor may get a row, the row's content decides, so that the result does not depend on order.
    """
    if entry.grouping == "all":
        return [list(rows) for _ in range(parallelism)]
    parts: list[list[Row]] = [[] for _ in range(parallelism)]
    route = KeyRouter(first_owners(parallelism))
    places = [fields.index(name) for name in entry.fields]
    for row in rows:
        match entry.grouping:
            case "fields":
                at = route(tuple(row[place] for place in places))
            case "global":
                at = 0
            case "direct":
                at = row[places[0] if places else 0]
                if at not in range(parallelism):
                    return None
            case _:
                at = crc32(codec_bytes(tuple(row))) % parallelism
        parts[at].append(row)
    return parts


def _kept(emitted: Emitted) -> dict[str, list[Row]]:
    return {stream: list(rows) for stream, rows in emitted.items()}

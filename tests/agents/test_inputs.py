"""Alignment of a bolt's channels at marks: every row is taken between the marks between which it was sent."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import pytest
from executor_harness import input_channel
from hypothesis import given
from hypothesis import strategies as st

from agents.worker.channels.channel import Barrier, ChannelId, CreditWindow, Delivery, End, Mark, Tick
from agents.worker.channels.ends import LocalIncoming, local_channel
from agents.worker.channels.input_gate import InputGate
from agents.worker.channels.linger import FlushTimer
from inventory.errors import RunError

Entry = Mark | str


def unjoined(inputs: InputGate, source: str) -> LocalIncoming:
    """The receiver's end of a channel that has not joined."""
    return local_channel(ChannelId(7, 0, 0), 0, (source, "default"), inputs, CreditWindow(99, 99), FlushTimer())[1]


def replace(inputs: InputGate, old: LocalIncoming, new: LocalIncoming) -> None:
    """Replace one channel by another at the next barrier."""
    inputs.leave_at_barrier(old)
    inputs.join_at_barrier(new)


def deliver(channel: LocalIncoming, *entries: Entry) -> None:
    for entry in entries:
        if isinstance(entry, str):
            channel.deliver([(entry,)], (), 0)
        else:
            channel.deliver_mark(entry)


def taken(inputs: InputGate) -> Iterator[Entry]:
    """Yield everything that can be taken now; rows by name."""
    while (entry := inputs.take()) is not None:
        if isinstance(entry, Delivery):
            yield from (row[0] for row in entry.rows)
        else:
            yield entry


@dataclass
class Sender:
    """One sender: what it sends on its first channel and, after each move, on the channel that replaces it."""

    name: str
    segments: list[list[Entry]] = field(default_factory=list)
    ends: list[LocalIncoming] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)


class Plan:
    """Senders with one order of marks; a mark is at the same place of all that send it."""

    def __init__(self, random: Random) -> None:
        self.marks = list(self._marks(random))
        self.senders = [Sender(f"s{at}") for at in range(random.randint(1, 4))]
        self.place: dict[str, int] = {}
        """Row -> marks that lie before it."""
        for sender in self.senders:
            self._fill(sender, random)
        sent = {
            mark[:2]
            for sender in self.senders
            for segment in sender.segments
            for mark in segment
            if isinstance(mark, tuple)
        }
        self.marks = [mark for mark in self.marks if mark[:2] in sent]
        for row, before in self.place.items():
            self.place[row] = sum(mark[:2] in sent for mark in self._all[:before])

    def _marks(self, random: Random) -> Iterator[Mark]:
        tick = barrier = 0
        for _ in range(random.randint(0, 8)):
            if random.random() < 0.5:
                tick += random.randint(1, 2)
                yield Tick(tick, tick * 10, 0)
            else:
                barrier += random.randint(1, 2)
                yield Barrier(barrier)

    def _fill(self, sender: Sender, random: Random) -> None:
        """Draw what a sender sends; an input that is exhausted before its end still sends barriers, but no ticks."""
        self._all = list(self.marks)
        exhausted = random.randint(0, len(self._all)) if random.random() < 0.4 else len(self._all) + 1
        ended = exhausted + random.randint(0, 3) if exhausted <= len(self._all) else len(self._all)
        segment: list[Entry] = []
        for before, mark in enumerate([*self._all, None]):
            if before <= exhausted:
                segment += [self._row(sender, before, at) for at in range(random.choice([0, 0, 1, 3]))]
            if mark is None or before >= ended:
                break
            if isinstance(mark, Tick) and before < exhausted:
                segment.append(mark._replace(due_ns=random.randint(1, 99)))
            elif isinstance(mark, Barrier):
                segment.append(mark)
                if random.random() < 0.3:
                    sender.segments.append(segment)
                    segment = []
        sender.segments.append([*segment, End()])

    def _row(self, sender: Sender, before: int, at: int) -> str:
        row = f"{sender.name}/{before}/{at}"
        self.place[row] = before
        return row


class Arrivals:
    """The inputs of a bolt that receives a plan's entries in any order that the channels allow."""

    def __init__(self, plan: Plan, random: Random) -> None:
        self.plan, self.random = plan, random
        self.inputs = InputGate()
        self.got: list[Entry] = []
        self.passed = 0
        self.prepared: set[int] = set()
        self.delivered: Counter[str] = Counter()
        for sender in plan.senders:
            sender.ends = [input_channel(self.inputs, sender.name)]
            sender.sent = [0]

    def run(self) -> None:
        while (choices := [(sender, at) for sender in self.plan.senders for at in self._may_send(sender)]) or any(
            len(sender.ends) < len(sender.segments) for sender in self.plan.senders
        ):
            if self.random.random() < 0.4 or not choices:
                self._take()
            else:
                self._send(*self.random.choice(choices))
            self._check_rows()
        while self._take():
            self._check_rows()

    def _may_send(self, sender: Sender) -> Iterator[int]:
        for at, sent in enumerate(sender.sent):
            # A sender that moves uses its new channel only after it has sent the barrier on the old one.
            if sent < len(sender.segments[at]) and (at == 0 or sender.sent[at - 1] >= len(sender.segments[at - 1]) - 1):
                yield at

    def _send(self, sender: Sender, at: int) -> None:
        entry = sender.segments[at][sender.sent[at]]
        if isinstance(entry, Barrier) and entry.number not in self.prepared:
            if self.inputs._joining or not self._is_next(entry):
                # The barrier before it is not over yet.
                return
            self._prepare(entry)
        sender.sent[at] += 1
        deliver(sender.ends[at], entry)
        if isinstance(entry, str):
            self.delivered[entry] += 1

    def _is_next(self, barrier: Barrier) -> bool:
        return next(mark for mark in self.plan.marks[self.passed :] if isinstance(mark, Barrier)) == barrier

    def _prepare(self, barrier: Barrier) -> None:
        """Announce all channels that start at a barrier before it is sent, sometimes after a cancelled announcement."""
        self.prepared.add(barrier.number)
        moving = [
            s for s in self.plan.senders if len(s.ends) < len(s.segments) and s.segments[len(s.ends) - 1][-1] == barrier
        ]
        for sender in moving:
            if self.random.random() < 0.3:
                replace(self.inputs, sender.ends[-1], unjoined(self.inputs, sender.name))
        self.inputs.cancel_changes()
        for sender in moving:
            new = unjoined(self.inputs, sender.name)
            replace(self.inputs, sender.ends[-1], new)
            sender.ends.append(new)
            sender.sent.append(0)

    def _take(self) -> bool:
        entry = self.inputs.take()
        if entry is None:
            return False
        if isinstance(entry, Delivery):
            for (row,) in entry.rows:
                assert self.plan.place[row] == self.passed, row
                self.got.append(row)
        else:
            self.got.append(entry)
            self.passed += 1
        return True

    def _check_rows(self) -> None:
        rows = sum(isinstance(entry, str) for entry in self.got)
        assert self.inputs.rows == self.delivered.total() - rows


@given(st.integers(0, 2**32))
def test_rows_and_marks_are_taken_in_the_common_order_of_all_channels(seed: int) -> None:
    random = Random(seed)  # noqa: S311 - it must be repeatable
    plan = Plan(random)
    arrivals = Arrivals(plan, random)
    arrivals.run()
    segments = [segment for sender in plan.senders for segment in sender.segments]
    due: dict[int, int] = {}
    for mark in (entry for segment in segments for entry in segment if isinstance(entry, Tick)):
        due[mark.number] = max(due.get(mark.number, 0), mark.due_ns)
    expected = [mark._replace(due_ns=due[mark.number]) if isinstance(mark, Tick) else mark for mark in plan.marks]
    assert [entry for entry in arrivals.got if not isinstance(entry, str)] == [*expected, End()]
    assert arrivals.got[-1] == End()
    for sender in plan.senders:
        rows = [entry for segment in sender.segments for entry in segment if isinstance(entry, str)]
        assert [row for row in arrivals.got if isinstance(row, str) and row.startswith(sender.name)] == rows
        # The ends of senders that moved are closed, and no others; a closed end keeps no reference to its sender.
        assert [hasattr(end, "sender_end") for end in sender.ends] == [False] * (len(sender.ends) - 1) + [True]
    assert not arrivals.inputs.channels
    assert len(arrivals.inputs) == arrivals.inputs.rows == 0


def test_rows_behind_a_mark_wait_until_the_other_channels_have_brought_it() -> None:
    inputs = InputGate()
    first, second = input_channel(inputs, "x"), input_channel(inputs, "y")
    deliver(first, "a", Barrier(1), "b", Barrier(2), "c")
    assert list(taken(inputs)) == ["a"]
    assert (len(inputs), inputs.rows) == (0, 2)
    deliver(second, "d", Barrier(1), "e")
    assert list(taken(inputs)) == ["d", Barrier(1), "b", "e"]
    deliver(second, End())
    assert list(taken(inputs)) == [Barrier(2), "c"]
    deliver(first, End())
    assert list(taken(inputs)) == [End()]


def test_a_channel_that_ends_does_not_block_the_others() -> None:
    inputs = InputGate()
    first, second, third = (input_channel(inputs, source) for source in "xyz")
    deliver(first, Tick(1, 10, 3), "a")
    deliver(second, Tick(1, 10, 5), "b")
    assert list(taken(inputs)) == []
    deliver(third, "c", End())
    assert list(taken(inputs)) == ["c", Tick(1, 10, 5), "a", "b"]
    assert inputs.channels == {first, second}


def test_a_new_channel_is_not_read_before_the_old_one_has_brought_the_barrier() -> None:
    inputs = InputGate()
    old, other = input_channel(inputs, "x"), input_channel(inputs, "y")
    new = unjoined(inputs, "x")
    replace(inputs, old, new)
    deliver(new, "later", Tick(4, 40, 0))
    deliver(other, "o", Tick(3, 30, 0), Barrier(2), "after")
    deliver(old, "first", Tick(3, 30, 1))
    assert list(taken(inputs)) == ["o", "first", Tick(3, 30, 1)]
    sender_end = old.sender_end
    assert not sender_end.closed
    deliver(old, "second", Barrier(2))
    assert list(taken(inputs)) == ["second", Barrier(2), "later", "after"]
    assert sender_end.closed
    assert inputs.channels == {new, other}
    deliver(other, Tick(4, 40, 0))
    assert list(taken(inputs)) == [Tick(4, 40, 0)]


def test_a_channel_that_was_to_be_replaced_stays_when_the_barrier_is_cancelled() -> None:
    inputs = InputGate()
    old, other = input_channel(inputs, "x"), input_channel(inputs, "y")
    deliver(old, Tick(1, 10, 0), "a")
    assert list(taken(inputs)) == []
    replace(inputs, old, unjoined(inputs, "x"))
    inputs.cancel_changes()
    assert inputs.channels == {old, other}
    deliver(other, Tick(1, 10, 0), Barrier(2))
    assert list(taken(inputs)) == [Tick(1, 10, 0), "a"]
    deliver(old, Barrier(2), "b")
    assert list(taken(inputs)) == [Barrier(2), "b"]
    assert not old.sender_end.closed


def test_an_exhausted_source_brings_barriers_without_the_ticks_before_them() -> None:
    inputs = InputGate()
    exhausted, other = input_channel(inputs, "x"), input_channel(inputs, "y")
    deliver(exhausted, "a", Tick(1, 10, 0), Barrier(5), End())
    deliver(other, "b", Tick(1, 10, 0), "c", Tick(2, 20, 0), "d", Tick(3, 30, 0))
    assert list(taken(inputs)) == ["a", "b", Tick(1, 10, 0), "c", Tick(2, 20, 0), "d", Tick(3, 30, 0)]
    deliver(other, Barrier(5), "e", Tick(4, 40, 0))
    assert list(taken(inputs)) == [Barrier(5), "e", Tick(4, 40, 0)]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([Tick(1, 10, 0)], [Tick(2, 20, 0)]),
        ([Tick(1, 10, 0)], [Tick(1, 11, 0)]),
        ([Barrier(1)], [Barrier(2)]),
        ([Tick(1, 10, 0), Tick(2, 20, 0)], [Tick(1, 10, 0), Tick(1, 10, 0)]),
        ([Tick(1, 10, 0), Barrier(1), Tick(2, 20, 0)], [Barrier(1), Tick(1, 10, 0)]),
        ([Tick(1, 10, 0), Barrier(1), End()], [Barrier(1), Tick(1, 10, 0)]),
    ],
)
def test_channels_that_disagree_on_the_order_of_marks_are_refused_by_name(
    ours: list[Entry], theirs: list[Entry]
) -> None:
    inputs = InputGate()
    first, second = input_channel(inputs, "x"), input_channel(inputs, "y")
    deliver(first, *ours)
    deliver(second, *theirs)
    with pytest.raises(RunError, match=r"^y sent "):
        list(taken(inputs))


class CountingDelivery(Delivery):
    """An entry that counts reads of its channel."""

    reads = 0

    @property
    def channel(self) -> LocalIncoming:  # type: ignore[override]
        type(self).reads += 1
        return self[0]  # type: ignore[return-value]


def test_queued_ticks_are_not_examined_again_for_each_tick_that_passes() -> None:
    inputs, ticks = InputGate(), 2_000
    channels = [unjoined(inputs, source) for source in ("a", "b", "c")]
    for channel in channels:
        inputs.join(channel)
    CountingDelivery.reads = 0
    for channel in channels:
        for number in range(1, ticks + 1):
            inputs.append(CountingDelivery(channel, (), (), 0, Tick(number, number * 1000, 0)))
    assert [entry.number for entry in taken(inputs) if isinstance(entry, Tick)] == list(range(1, ticks + 1))
    assert CountingDelivery.reads <= 4 * len(channels) * ticks

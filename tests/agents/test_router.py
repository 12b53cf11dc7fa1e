"""Groupings: the receiver of a row depends only on its values and the number of rows before it."""

from collections import Counter, deque
from collections.abc import Sequence

import pytest
from channel_ends import RecordedChannel
from hypothesis import given
from hypothesis import strategies as st

from agents.worker.channels.channel import (
    BATCH_ROWS,
    Barrier,
    ChannelId,
    CreditWindow,
    Delivery,
    End,
    Tick,
)
from agents.worker.channels.ends import LocalOutgoing, local_channel
from agents.worker.channels.groupings import Global, Grouping, Router, grouping_of
from agents.worker.channels.linger import FlushTimer
from inventory.errors import RunError
from workloads.key_groups import first_owners, key_group, owners_from_runs
from workloads.operators import Row
from workloads.topology import Input

SCHEMA = {"word": "str", "n": "int", "blob": "bytes"}


def local_ends(count: int, window: int) -> tuple[list[LocalOutgoing], deque[Delivery]]:
    """Channels within this worker, and the queue that all of them lead to."""
    queue: deque[Delivery] = deque()
    size = CreditWindow(window, 100)
    return [
        local_channel(ChannelId(0, at, 0), 0, ("a", "s"), queue, size, FlushTimer())[0] for at in range(count)
    ], queue


def channels(count: int) -> list[RecordedChannel]:
    return [RecordedChannel(receiver) for receiver in range(count)]


def grouping(sent: list[RecordedChannel], kind: str, fields: tuple[str, ...] = (), sender: int = 0) -> Grouping:
    return grouping_of(Input("a", kind, fields), SCHEMA, sent, sender, first_owners(len(sent)))


ROWS = st.lists(st.tuples(st.text(max_size=2), st.integers(0, 4), st.binary(max_size=1)), max_size=40)
BATCHES = st.lists(ROWS, max_size=8)


@given(BATCHES, st.integers(1, 7), st.integers(0, 100))
def test_shuffle_is_exactly_even_at_every_moment_and_keeps_order(batches: list, count: int, sender: int) -> None:
    sent = channels(count)
    shuffle = grouping(sent, "shuffle", sender=sender)
    numbered, number = [], 0
    for batch in batches:
        rows = [(number + at, *row) for at, row in enumerate(batch)]
        number += len(rows)
        numbered += rows
        if rows:
            shuffle.deal(rows)
        shares = [len(channel.rows) for channel in sent]
        assert max(shares) - min(shares) <= 1
    assert [channel.rows for channel in sent] == [numbered[(at - sender) % count :: count] for at in range(count)]


def test_senders_of_a_shuffle_start_at_different_executors() -> None:
    first = []
    for sender in range(5):
        sent = channels(5)
        grouping(sent, "shuffle", sender=sender).deal([("x", 0, b"")])
        first += [at for at, channel in enumerate(sent) if channel.rows]
    assert sorted(first) == list(range(5))


@given(
    BATCHES,
    st.integers(1, 7),
    st.lists(st.sampled_from(sorted(SCHEMA)), min_size=1, max_size=3, unique=True),
)
def test_a_key_goes_where_its_key_group_says_in_order(batches: list, count: int, fields: list[str]) -> None:
    sent = channels(count)
    by_key = grouping(sent, "fields", tuple(fields))
    places = [list(SCHEMA).index(name) for name in fields]
    owners = first_owners(count)
    expected: list[list[Row]] = [[] for _ in sent]
    for batch in batches:
        for row in batch:
            expected[owners[key_group(tuple(row[place] for place in places))]].append(row)
        if batch:
            by_key.deal(batch)
    assert [channel.rows for channel in sent] == expected


def test_the_table_of_owners_decides_and_not_the_number_of_executors() -> None:
    group = key_group(("whale",))
    owners = owners_from_runs([(0, group), (2, 1), (1, 1023 - group)])
    sent = channels(3)
    grouping_of(Input("a", "fields", ("word",)), SCHEMA, sent, 0, owners).deal([("whale", 0, b""), ("ship", 1, b"")])
    assert [[row[0] for row in channel.rows] for channel in sent][2] == ["whale"]
    assert len(sent[owners[key_group(("ship",))]].rows) == 1


@pytest.mark.parametrize("fields", [("word",), ("n", "word"), ("word", "n", "blob")])
def test_two_senders_agree_on_every_key(fields: tuple[str, ...]) -> None:
    rows = [(word, n, blob) for word in ("to", "be", "or", "") for n in range(9) for blob in (b"", b"x")]
    ours, theirs = channels(5), channels(5)
    grouping(ours, "fields", fields, sender=0).deal(rows)
    for row in reversed(rows):
        grouping(theirs, "fields", fields, sender=3).deal([row])
    assert [Counter(channel.rows) for channel in ours] == [Counter(channel.rows) for channel in theirs]
    assert sum(bool(channel.rows) for channel in ours) > 1


def test_values_that_are_equal_in_python_are_one_key() -> None:
    sent = channels(7)
    rows = [("a", 1, b"k"), ("a", True, b"k"), ("a", 1.0, b"k"), ("a", 1, memoryview(b"k"))]
    grouping(sent, "fields", ("n", "blob")).deal(rows)
    assert sorted(len(channel.rows) for channel in sent)[-2:] == [0, 4]


@given(BATCHES, st.integers(1, 5))
def test_global_goes_to_the_first_and_all_to_every_executor(batches: list, count: int) -> None:
    first, every = channels(count), channels(count)
    for batch in filter(None, batches):
        grouping(first, "global").deal(batch)
        grouping(every, "all").deal(batch)
    rows = [row for batch in batches for row in batch]
    assert [channel.rows for channel in first] == [rows, *([] for _ in first[1:])]
    assert [channel.rows for channel in every] == [rows] * count


@given(ROWS, st.integers(5, 9))
def test_direct_goes_to_the_index_in_the_row(rows: list[Row], count: int) -> None:
    sent = channels(count)
    if rows:
        grouping(sent, "direct", ("n",)).deal(rows)
    assert [channel.rows for channel in sent] == [[row for row in rows if row[1] == at] for at in range(count)]


@pytest.mark.parametrize("target", [-1, 3, 2**40])
def test_direct_to_an_executor_that_does_not_exist_is_an_error(target: int) -> None:
    with pytest.raises(RunError, match=f"executor {target} of 3"):
        grouping(channels(3), "direct", ("n",)).deal([("x", target, b"")])


@pytest.mark.parametrize("fields", [(), ("word",), ("blob",)])
def test_direct_needs_an_int_field(fields: tuple[str, ...]) -> None:
    with pytest.raises(RunError, match="int field"):
        grouping(channels(3), "direct", fields)


def test_local_or_shuffle_prefers_executors_of_the_same_worker() -> None:
    here, _ = local_ends(2, 100)
    away = channels(2)
    local = grouping([away[0], here[0], away[1], here[1]], "local-or-shuffle", sender=1)
    local.deal([(at,) for at in range(6)])
    assert [channel.pending for channel in here] == [[(1,), (3,), (5,)], [(0,), (2,), (4,)]]
    assert not any(channel.rows for channel in away)
    grouping(away, "local-or-shuffle").deal([(1,), (2,), (3,)])
    assert sorted(len(channel.rows) for channel in away) == [1, 2]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("shuffle", ()),
        ("fields", ("word",)),
        ("fields", ("word", "n")),
        ("fields", ("word", "n", "blob")),
        ("global", ()),
        ("all", ()),
        ("direct", ("n",)),
        ("local-or-shuffle", ()),
    ],
)
@given(stamped=st.lists(st.sets(st.integers(0, 8)), min_size=1, max_size=4))
def test_every_grouping_keeps_every_stamp_with_its_row(
    kind: str, fields: tuple[str, ...], stamped: list[set[int]]
) -> None:
    sent = channels(3)
    dealer = grouping(sent, kind, fields)
    rows = [(word, n, b"") for word in "abc" for n in range(3)]
    expected: Counter[tuple[Row, int | None]] = Counter()
    for number, chosen in enumerate(stamped):
        stamps = [(at, 100 * number + at) for at in sorted(chosen)]
        dealer.deal(rows, stamps)
        expected.update((row, dict(stamps).get(at)) for at, row in enumerate(rows))
    got = Counter((row, stamp) for end in sent for row, stamp in zip(end.rows, end.stamps, strict=True))
    copies = 3 if kind == "all" else 1
    assert got == Counter({entry: count * copies for entry, count in expected.items()})


@given(ROWS, st.integers(1, 5), st.sets(st.integers(0, 39)))
def test_rows_are_combined_before_they_are_sent_by_key_except_sampled_ones(
    rows: list[Row], count: int, sampled: set[int]
) -> None:
    def added_up(unsampled: Sequence[Row]) -> list[Row]:
        totals: Counter[str] = Counter()
        for word, n, _ in unsampled:
            totals[word] += n
        return [(word, total, b"") for word, total in totals.items()]

    sent = channels(count)
    stamps = [(at, 100 + at) for at in sorted(sampled) if at < len(rows)]
    owners = first_owners(count)
    grouping_of(Input("a", "fields", ("word",)), SCHEMA, sent, 0, owners, combine=added_up).deal(rows, stamps)
    got = [(row, stamp) for end in sent for row, stamp in zip(end.rows, end.stamps, strict=True)]
    assert Counter(entry for entry in got if entry[1]) == Counter((rows[at], stamp) for at, stamp in stamps)
    rest = [row for at, row in enumerate(rows) if at not in dict(stamps)]
    assert Counter(row for row, stamp in got if stamp is None) == Counter(added_up(rest))
    places = [owners[key_group((row[0],))] for end in sent for row in end.rows]
    assert places == [at for at, end in enumerate(sent) for _ in end.rows]


def test_a_router_sends_every_stream_to_all_its_subscribers_and_counts_rows_once() -> None:
    first, second, third = channels(3)
    streams = {
        "default": [grouping([first], "global"), grouping([second], "global")],
        "side": [grouping([third], "global")],
        "unsubscribed": [],
    }
    router = Router("b[0]", streams, [first, second, third])
    rows = [("x", 1, b"")]
    assert router.emit({"default": rows * 2, "side": rows, "unsubscribed": rows * 5, "other": []}) == 8
    assert (first.rows, second.rows, third.rows) == (rows * 2, rows * 2, rows)


def test_one_blocked_channel_blocks_the_executor() -> None:
    ends, _ = local_ends(3, 10)
    router = Router("b[0]", {}, ends)
    assert not router.blocked
    ends[1].add([(at,) for at in range(BATCH_ROWS + 44)])
    assert router.blocked
    router.mark(End())
    assert not router.ended
    ends[1].credit(BATCH_ROWS + 34, 1 << 20)
    assert router.ended
    assert not router.blocked


def test_a_mark_goes_to_every_channel_after_all_emitted_rows() -> None:
    ends, queue = local_ends(3, 10)
    router = Router("b[0]", {"default": [Global(ends[1])]}, ends)
    router.emit({"default": [(1,), (2,)]})
    router.mark(Tick(1, 2, 3))
    router.mark(Barrier(4))
    assert not router.ended
    router.mark(End())
    by_channel: dict[object, list[object]] = {}
    for delivery in queue:
        by_channel.setdefault(delivery.channel, []).append(delivery.rows if delivery.mark is None else delivery.mark)
    marks = [Tick(1, 2, 3), Barrier(4), End()]
    assert sorted(by_channel.values(), key=len) == [marks, marks, [[(1,), (2,)], *marks]]
    assert router.ended

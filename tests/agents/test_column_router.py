"""Columns reach the executors that their rows would reach, in the same order, with the same stamps."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from channel_ends import RecordedChannel
from column_rows import CUTS, ENCODED, Encoders, Stream, exact_values, in_chunks, streams, with_dictionaries
from hypothesis import given
from hypothesis import strategies as st

from agents.worker.channels import column_groupings
from agents.worker.channels.channel import BATCH_ROWS, ChannelId, CreditWindow
from agents.worker.channels.ends import local_channel
from agents.worker.channels.gated import GatedLocal, Pool
from agents.worker.channels.groupings import Grouping, grouping_of
from agents.worker.channels.linger import FlushTimer
from agents.worker.executors.columns import column_combine
from agents.worker.wire.frame import Stamps
from inventory.errors import RunError
from workloads import dictionaries
from workloads.apps.wordcount_columns import ColumnCount
from workloads.arrays import batch_of, distinct
from workloads.columns import ColumnBatch, ColumnBolt, Columns
from workloads.key_groups import first_owners
from workloads.operators import Row
from workloads.topology import Input


def dealt(
    grouping: Grouping, sent: list[RecordedChannel], batches: Sequence[tuple[Sequence[Row], Stamps]]
) -> list[list]:
    for rows, stamps in batches:
        grouping.deal(rows, stamps)
    return [list(zip(exact_values(channel.rows), channel.stamps, strict=True)) for channel in sent]


KINDS = ["shuffle", "fields", "global", "all", "local-or-shuffle"]


@pytest.mark.parametrize("kind", KINDS)
@given(
    stream=streams(),
    cuts=CUTS,
    encoded=ENCODED,
    sampled=st.sets(st.integers(0, 29)),
    count=st.integers(1, 5),
    sender=st.integers(0, 5),
    data=st.data(),
)
def test_columns_go_where_their_rows_go(
    kind: str,
    stream: Stream,
    cuts: list[int],
    encoded: list[bool],
    sampled: set[int],
    count: int,
    sender: int,
    data: st.DataObject,
) -> None:
    schema, rows = stream
    fields = data.draw(st.permutations(list(schema)))[: data.draw(st.integers(1, len(schema)))]
    entry = Input("a", kind, tuple(fields) if kind == "fields" else ())
    stamps = [(at, 100 + at) for at in sorted(sampled) if at < len(rows)]
    # Several times, because a shuffle goes on where it was, and dictionaries grow.
    batches = [(rows, stamps), (rows[: len(rows) // 2 + 1], ()), (rows[::-1], ()), (rows, stamps)]
    found = []
    for encoders in (None, None, Encoders()):
        sent = [RecordedChannel(receiver) for receiver in range(count)]
        grouping = grouping_of(entry, schema, sent, sender, first_owners(count))
        parts = batches
        if found:
            parts = [(in_chunks(schema, part, cuts, encoded, encoders), times) for part, times in batches]
        found.append(dealt(grouping, sent, parts[:2]))
        for channel in sent:
            channel.generation = object()  # as behind a barrier
        found[-1] += dealt(grouping, sent, parts[2:])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("room", [0, 40, 1 << 20])
def test_columns_reach_the_same_executors_when_dictionaries_are_full(room: int) -> None:
    schema = {"word": "str", "n": "int"}
    batches = [[(f"{at} " * (1 + at % 9), at) for at in range(start, start + 40)] * 3 for start in (0, 20, 40, 0, 60)]
    found = []
    for as_columns in (False, True):
        sent = [RecordedChannel(receiver) for receiver in range(3)]
        for channel in sent:
            channel.dictionary_bytes = room
        grouping = grouping_of(Input("a", "fields", ("word",)), schema, sent, 0, first_owners(3))
        with mock.patch.object(dictionaries, "MOST_ENTRIES", 70), mock.patch.object(column_groupings, "PAUSE", 1):
            found.append(
                dealt(grouping, sent, [(Columns.of_rows(schema, part) if as_columns else part, ()) for part in batches])
            )
    assert found[0] == found[1]


@given(st.lists(st.tuples(st.integers(0, 4), st.text(max_size=1)), min_size=1), st.sets(st.integers(0, 20)))
def test_columns_are_sent_directly_where_their_rows_are(rows: list[Row], sampled: set[int]) -> None:
    schema = {"n": "int", "s": "str"}
    stamps = [(at, 100 + at) for at in sorted(sampled) if at < len(rows)]
    found = []
    for batch in (rows, Columns.of_rows(schema, rows)):
        sent = [RecordedChannel(receiver) for receiver in range(5)]
        found.append(dealt(grouping_of(Input("a", "direct", ("n",)), schema, sent, 0), sent, [(batch, stamps)]))
    assert found[0] == found[1]


@pytest.mark.parametrize("target", [-1, 3, 2**40])
def test_columns_to_an_executor_that_does_not_exist_are_an_error(target: int) -> None:
    sent = [RecordedChannel(receiver) for receiver in range(3)]
    with pytest.raises(RunError, match=f"executor {target} of 3"):
        grouping_of(Input("a", "direct", ("n",)), {"n": "int"}, sent, 0).deal(
            Columns.of_rows({"n": "int"}, [(0,), (target,)])
        )


def test_a_repeated_key_is_dictionary_encoded_with_the_entries_of_its_channel_only() -> None:
    schema = {"word": "str"}
    parts: list[Columns] = []

    class Keeping(RecordedChannel):
        def add(self, rows: Sequence[Row], stamps: Stamps = ()) -> None:
            assert isinstance(rows, Columns)
            parts.append(rows)

    words = [(f"word {at % 7}",) for at in range(70)]
    sent: list[RecordedChannel] = [Keeping(receiver) for receiver in range(3)]
    grouping_of(Input("a", "fields", ("word",)), schema, sent, 0, first_owners(3)).deal(Columns.of_rows(schema, words))
    entries = [part.batch().column(0).dictionary.to_pylist() for part in parts]
    assert sorted(chain.from_iterable(entries)) == sorted({word for (word,) in words})
    assert all(set(kept) == {word for (word,) in part} for kept, part in zip(entries, parts, strict=True))


@given(streams(), CUTS, ENCODED, st.integers(0, 29), st.integers(1, 30))
def test_distinct_values_are_those_of_the_rows_even_if_the_dictionary_has_others(
    stream: Stream, cuts: list[int], encoded: list[bool], start: int, stop: int
) -> None:
    schema, rows = stream
    for place, column in enumerate(in_chunks(schema, rows, cuts, encoded)[start:stop].batch().columns):
        codes, values = distinct(column)
        found = exact_values([(value,) for value in values.to_pylist()])
        of_rows = exact_values([(row[place],) for row in rows[start:stop]])
        assert [found[code] for code in codes] == of_rows
        assert sorted(found) == sorted(value for at, value in enumerate(of_rows) if value not in of_rows[:at])


def test_a_filtered_dictionary_counts_no_word_that_was_dropped_and_reaches_no_executor_that_does_not_own_it() -> None:
    schema = {"word": "str"}
    counts: list[ColumnCount] = [ColumnCount() for _ in range(3)]

    class Counting(RecordedChannel):
        def add(self, rows: Sequence[Row], stamps: Stamps = ()) -> None:
            assert isinstance(rows, Columns)
            counts[self.id.receiver].process_columns(ColumnBatch("a", "default", rows.batch()))

    sent: list[RecordedChannel] = [Counting(receiver) for receiver in range(3)]
    grouping = grouping_of(Input("a", "fields", ("word",)), schema, sent, 0, first_owners(3))
    words = [(f"word {at % 40}",) for at in range(200)]
    whole = with_dictionaries(batch_of(schema, words))
    for kept in (range(10), range(0, 200, 2)):
        grouping.deal(Columns(schema, whole.take(pa.array(kept))))
    expected = Counter(words[at] for kept in (range(10), range(0, 200, 2)) for at in kept)
    found = [dict(count.answer()) for count in counts]
    assert sum(map(len, found)) == len(expected)
    assert {(word,): number for each in found for word, number in each.items()} == expected


class Summing(ColumnBolt):
    """Adds up numbers by word before they are distributed."""

    def combine(self, rows: Sequence[Row]) -> Sequence[Row]:
        raise AssertionError("there are no rows here")

    def combine_columns(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        codes, words = distinct(columns.column(0))
        totals = np.zeros(len(words), np.int64)
        np.add.at(totals, codes, columns.column(1).to_numpy())
        return pa.RecordBatch.from_arrays([words, pa.array(totals)], names=["word", "n"])


@given(
    st.lists(st.tuples(st.sampled_from(["to", "be", "or"]), st.integers(0, 9)), min_size=1, max_size=40),
    st.sets(st.integers(0, 39)),
    st.booleans(),
)
def test_columns_are_combined_before_they_are_dealt_and_sampled_rows_are_not(
    rows: list[Row], sampled: set[int], from_rows: bool
) -> None:
    schema = {"word": "str", "n": "int"}
    stamps = [(at, 100 + at) for at in sorted(sampled) if at < len(rows)]
    sent = [RecordedChannel(receiver) for receiver in range(3)]
    combine = column_combine(Summing(), schema, "b")
    grouping = grouping_of(Input("a", "fields", ("word",)), schema, sent, 0, first_owners(3), combine=combine)
    grouping.deal(rows if from_rows else Columns.of_rows(schema, rows), stamps)
    got = [(row, stamp) for end in sent for row, stamp in zip(end.rows, end.stamps, strict=True)]
    stamp_of = dict(stamps)
    assert sorted(entry for entry in got if entry[1]) == sorted((rows[at], stamp) for at, stamp in stamps)
    totals: dict[str, int] = {}
    for at, (word, n) in enumerate(rows):
        if at not in stamp_of:
            totals[word] = totals.get(word, 0) + n
    assert sorted(row for row, stamp in got if stamp is None) == sorted(totals.items())


def test_a_batch_of_columns_takes_its_exact_bytes_of_the_window_and_is_cut_to_the_credit() -> None:
    queue: list = []
    window = CreditWindow(BATCH_ROWS, 1 << 20)
    outgoing, incoming = local_channel(ChannelId(0, 1, 0), 0, ("a", "s"), queue, window, FlushTimer(), batches=8)
    columns = Columns.of_rows({"n": "int"}, [(at,) for at in range(3 * BATCH_ROWS)])
    outgoing.add(columns)
    outgoing.flush()
    assert [(len(entry.rows), entry.nbytes) for entry in queue] == [(BATCH_ROWS, 8 * BATCH_ROWS)]
    assert outgoing.blocked is False  # a full batch has eight times as many rows
    incoming.consumed(BATCH_ROWS, 8 * BATCH_ROWS)
    outgoing.flush()
    incoming.consumed(BATCH_ROWS, 8 * BATCH_ROWS)
    outgoing.flush()
    assert [row for entry in queue for row in entry.rows] == list(columns)


def test_columns_wait_for_their_gate_like_rows() -> None:
    queue: list = []
    ends = [
        local_channel(ChannelId(0, at, 0), 0, ("a", "s"), queue, CreditWindow(100, 1 << 20), FlushTimer(), GatedLocal)[
            0
        ]
        for at in range(2)
    ]
    for end in ends:
        assert isinstance(end, GatedLocal)
        end.part_tuples = 4
    pool = Pool(ends, 0)
    rows = [(at,) for at in range(12)]
    pool.deal(Columns.of_rows({"n": "int"}, rows[:5]), [(2, 7)])
    pool.deal(rows[5:], [(0, 8)])
    pool.distribute(lambda channel: channel is ends[1])
    assert list(ends[1].pending) == rows[:4]
    assert isinstance(ends[1], GatedLocal)
    assert ends[1].release(3) == 3
    pool.assign_waiting()
    assert ends[1].release(100) + ends[0].release(100) > 0
    sent = [row for entry in queue for row in entry.rows]
    assert sorted(sent + [row for end in ends for row in end.pending]) == rows
    stamped = {entry.rows[at]: stamp for entry in queue for at, stamp in entry.stamps}
    assert stamped.items() <= {(2,): 7, (5,): 8}.items()

"""Digests of multisets of rows: independent of order, additive, restorable, in bounded memory."""

from hashlib import blake2b

from hypothesis import given
from hypothesis import strategies as st

from workloads.data import row_digest
from workloads.data.row_digest import EMPTY, SCHEMA, RowMultiset, digest_of, merged_digest
from workloads.key_groups import codec_bytes

ROWS = st.lists(st.tuples(st.text(max_size=3) | st.integers(0, 5), st.text("ab", max_size=2)), max_size=60)


def multiset_of(rows, cuts=1):
    found = RowMultiset()
    for start in range(cuts):
        found.add(rows[start::cuts])
    return found


@given(ROWS.flatmap(lambda rows: st.tuples(st.just(rows), st.permutations(rows))), st.integers(1, 5))
def test_the_digest_does_not_depend_on_order_or_batches(orders, cuts):
    rows, shuffled = orders
    assert multiset_of(rows).digest == multiset_of(shuffled, cuts).digest


@given(ROWS, ROWS)
def test_different_multisets_have_different_digests(rows, others):
    same = sorted(map(repr, rows)) == sorted(map(repr, others))
    assert (multiset_of(rows).digest == multiset_of(others).digest) == same


def test_a_lost_a_repeated_and_a_changed_row_each_change_the_digest():
    rows = [(word,) for word in ("call", "me", "ishmael", "some", "years", "ago")]
    digests = [
        multiset_of(changed).digest
        for changed in (rows, rows[1:], [*rows, rows[0]], [("Call",), *rows[1:]], [*rows[1:], rows[1]])
    ]
    assert len(set(digests)) == len(digests)


def test_a_digest_is_the_count_and_the_sum_of_hashes():
    hashes = [int.from_bytes(blake2b(b, digest_size=16).digest(), "big") for b in (b"\x91\xa1a", b"\x91\xa1b")]
    expected = (3, (2 * hashes[0] + hashes[1]) % 2**128)
    assert multiset_of([("a",), ("b",), ("a",)]).digest == expected
    assert digest_of({("a",): 2, ("b",): 1}) == expected


@given(ROWS, st.integers(0, 60))
def test_parts_add_up_to_the_whole(rows, cut):
    parts = [multiset_of(rows[:cut]), multiset_of(rows[cut:]), RowMultiset()]
    assert merged_digest([part.digest.row for part in parts]) == multiset_of(rows).digest
    assert len(multiset_of(rows).digest.row) == len(SCHEMA)


@given(ROWS, st.integers(0, 60))
def test_a_restored_multiset_continues_where_it_was(rows, cut):
    first = multiset_of(rows[:cut])
    again = RowMultiset([first.digest.row])
    again.add(rows[cut:])
    assert again.digest == multiset_of(rows).digest


def test_memory_is_bounded_and_the_digest_the_same(monkeypatch):
    rows = [(number % 700,) for number in range(2000)]
    expected = multiset_of(rows).digest
    monkeypatch.setattr(row_digest, "MOST_COUNTED", 50)
    found = RowMultiset()
    for start in range(0, len(rows), 10):
        found.add(rows[start : start + 10])
        assert len(found._counted) + len(found._aside) <= 2 * 60
    assert found.digest == expected


def test_no_batch_pays_for_the_rows_of_all_batches_before(monkeypatch):
    hashed = []

    def counting(row):
        hashed.append(row)
        return codec_bytes(row)

    monkeypatch.setattr(row_digest, "MOST_COUNTED", 1_000)
    monkeypatch.setattr(row_digest, "codec_bytes", counting)
    found, most = RowMultiset(), 0
    for start in range(0, 20_000, 10):
        before = len(hashed)
        found.add([(number,) for number in range(start, start + 10)])
        most = max(most, len(hashed) - before)
    # All rows of a full multiset at once would keep the rows behind them waiting for 0.1 s.
    assert 10 <= most <= 2 * 10
    assert found.digest == digest_of({(number,): 1 for number in range(20_000)})


def test_an_empty_multiset_has_the_empty_digest():
    assert RowMultiset().digest == EMPTY == merged_digest([])
    assert RowMultiset().digest.row == (0, "0" * 32)

"""Growing dictionaries: encoded text is unchanged, entries never change, and each is looked up once."""

import gc
from collections import Counter
from collections.abc import Sequence
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inventory.errors import RunError
from workloads import dictionaries
from workloads.arrays import checked_batch, concatenated, decoded, nbytes_of, rows_within, stream_schema
from workloads.data.words import WordEncoder, words_of
from workloads.dictionaries import Dictionary, DictionaryEncoder, EntryNumbers, Tally, dictionary_of

WORDS = {"word": "str"}
# Lengths around those at which the hash table uses another word, or another table.
TEXTS = st.text(max_size=3) | st.integers(6, 18).map("x".__mul__) | st.sampled_from(["", "\0", "a\0", "a", "é" * 8])
BATCHES = st.lists(st.lists(TEXTS, max_size=12), max_size=6)


def batch(column: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([column], names=["word"])


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
@given(batches=BATCHES, repeated=st.integers(1, 3), before=st.integers(0, 2))
def test_encoded_text_decodes_to_the_same_text(
    kind: pa.DataType, batches: list[list[str]], repeated: int, before: int
) -> None:
    encoder = DictionaryEncoder(kind)
    encoded: list[tuple[pa.Array, Sequence[object]]] = []
    for texts in batches:
        values = [text if kind == pa.string() else text.encode() for text in texts * repeated]
        found = encoder.encode(pa.array(["before"] * before + values, pa.string()).cast(kind)[before:])
        if found is not None:
            encoded.append((found, values))
            assert dictionary_of(found) is encoder.dictionary or not values
    # Later batches do not change earlier ones.
    for found, values in encoded:
        found.validate(full=True)
        assert found.to_pylist() == values
    entries = encoder.dictionary.values.to_pylist()
    assert len(set(entries)) == len(entries) == len(encoder.dictionary)
    assert encoder.dictionary.nbytes == sum(len(entry.encode() if kind == pa.string() else entry) for entry in entries)


def test_tens_of_thousands_of_texts_get_distinct_codes() -> None:
    encoder = DictionaryEncoder(pa.string())
    texts = [f"{at:x} " * (1 + at % 5) for at in range(20_000)]
    for _ in range(2):
        codes = encoder.codes_of(pa.array(texts))
        assert codes is not None
        assert codes.tolist() == list(range(20_000))


def test_text_that_hardly_repeats_is_not_encoded_and_looked_up_ever_less_often() -> None:
    encoder = DictionaryEncoder(pa.string())
    lookups = []
    with mock.patch.object(DictionaryEncoder, "_codes", autospec=True, side_effect=DictionaryEncoder._codes) as codes:
        for at in range(40):
            assert encoder.encode(pa.array([f"{at} {row}" for row in range(10)])) is None
            lookups.append(codes.call_count)
    assert lookups[-1] == 5
    assert len(encoder.dictionary) == 0


@pytest.mark.parametrize(("limit", "most"), [("MOST_ENTRIES", 7), ("MOST_BYTES", 20)])
def test_a_full_dictionary_is_replaced_by_a_new_one(limit: str, most: int) -> None:
    encoder = DictionaryEncoder(pa.string())
    with mock.patch.object(dictionaries, limit, most):
        first = encoder.dictionary
        assert encoder.encode(pa.array(["a", "bc", "def"] * 3)) is not None
        assert encoder.encode(pa.array(["gehen", "laufen", "rennen", "eilen", "schreiten"] * 3)) is None
        assert encoder.dictionary is not first
        encoder._paused = 0
        found = encoder.encode(pa.array(["a", "gehen"] * 3))
        assert found is not None
        assert found.to_pylist() == ["a", "gehen"] * 3


def test_a_dictionary_is_found_by_its_memory_while_it_exists() -> None:
    dictionary = Dictionary(pa.string())
    columns = []
    for at in range(300):
        dictionary.append(pa.array([f"{at} " * 20]))
        columns.append(pa.DictionaryArray.from_arrays(pa.array([at], pa.int32()), dictionary.values))
    assert all(dictionary_of(column) is dictionary for column in columns)
    assert [column.to_pylist() for column in columns] == [[f"{at} " * 20] for at in range(300)]
    assert dictionary.longest == len("299 " * 20)
    part = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), dictionary.values[1:])
    other = columns[0].cast(pa.dictionary(pa.int32(), pa.binary()))
    assert dictionary_of(part) is dictionary_of(other) is None
    assert dictionary_of(pa.array(["a"]).dictionary_encode()) is dictionary_of(pa.array(["a"])) is None
    gc.disable()
    try:
        del dictionary
        assert dictionary_of(columns[0]) is None
    finally:
        gc.enable()


@given(BATCHES)
def test_columns_of_one_dictionary_stay_encoded_when_they_are_concatenated(batches: list[list[str]]) -> None:
    encoder = DictionaryEncoder(pa.string())
    columns = [found for texts in batches if (found := encoder.encode(pa.array(texts * 2, pa.string()))) is not None]
    if not columns:
        return
    joined = concatenated(WORDS, list(map(batch, columns))).column(0)
    assert joined.to_pylist() == [text for column in columns for text in column.to_pylist()]
    if any(map(len, columns)):
        assert dictionary_of(joined) is encoder.dictionary
        mixed = concatenated(WORDS, [batch(columns[0]), batch(decoded(columns[-1]))]).column(0)
        assert mixed.to_pylist() == columns[0].to_pylist() + columns[-1].to_pylist()


def test_a_number_is_computed_once_per_entry() -> None:
    computed: list[str] = []

    def number(values: pa.Array) -> np.ndarray:
        computed.extend(values.to_pylist())
        return np.array([len(value) for value in values.to_pylist()], np.int64)

    numbers, encoder = EntryNumbers(number), DictionaryEncoder(pa.string())
    for texts in (["a", "bb"], ["bb", "ccc"], ["a", "ccc"]):
        found = encoder.encode(pa.array(texts * 2))
        assert found is not None
        assert numbers.of(found).tolist() == [len(text) for text in texts * 2]
    assert computed == ["a", "bb", "ccc"]
    assert numbers.of(pa.array(["a", "dddd"]).dictionary_encode()).tolist() == [1, 4]


@given(st.lists(st.tuples(st.lists(st.sampled_from("abc"), min_size=1), st.booleans()), max_size=6), st.booleans())
def test_a_tally_has_the_sums_of_all_rows(batches: list[tuple[list[str], bool]], large: bool) -> None:
    tally, encoder, found = Tally(), DictionaryEncoder(pa.string()), Counter[str]()
    expected = Counter[str]()
    for texts, encoded in batches:
        numbers = np.arange(1, len(texts) + 1) + (1 << 53) * large
        column = pa.array(texts)
        column = encoder.encode(column) or column if encoded else column
        for text, number in tally.add(column, numbers):
            found[text] += number
        for text, number in zip(texts, numbers.tolist(), strict=True):
            expected[text] += number
    for text, number in tally.drain():
        found[text] += number
    assert found == expected
    assert list(tally.drain()) == []


def test_a_tally_of_replaced_dictionaries_becomes_full() -> None:
    tally = Tally()
    for at in range(66):
        encoder = DictionaryEncoder(pa.string())
        assert tally.is_full == (at > 64)
        assert list(tally.add(encoder.encode(pa.array(["a", "a"])))) == []
    assert Counter(dict(tally.drain())) == {"a": 2}


@given(st.lists(st.lists(st.text(st.sampled_from("ab \x85é"), max_size=20), max_size=6), max_size=5))
def test_encoded_words_are_the_words(batches: list[list[str]]) -> None:
    encoder = WordEncoder()
    for lines in batches:
        column = pa.array(lines * 2, pa.string())
        plain, encoded = words_of(column), encoder.words_of(column)
        assert encoded.words.to_pylist() == plain.words.to_pylist()
        assert encoded.lines().tolist() == plain.lines().tolist()


@pytest.mark.parametrize("indices", [[0, 5], [-1, 0]])
def test_indices_beyond_a_dictionary_are_refused(indices: list[int]) -> None:
    dictionary = Dictionary(pa.string())
    dictionary.append(pa.array(["a", "b"]))
    wrong = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), dictionary.values, safe=False)
    with pytest.raises(RunError, match=r"b\[0\] emitted indices beyond the dictionary of the column 'word'"):
        checked_batch(batch(wrong), stream_schema(WORDS), "b[0]")


def test_bytes_of_a_batch_exclude_the_dictionary_but_limits_count_the_decoded_rows() -> None:
    dictionary = Dictionary(pa.string())
    dictionary.append(pa.array(["x" * 1000, "y"]))
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 0], pa.int32()), dictionary.values)
    assert nbytes_of(batch(column)) == 16
    assert [rows_within(batch(column), most) for most in (1, 1000, 1001, 2000, 2001, 3001)] == [1, 1, 2, 2, 3, 4]
    assert rows_within(batch(decoded(column)), 1) == 4
    assert rows_within(batch(decoded(column).dictionary_encode()), 2001) == 3

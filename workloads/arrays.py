"""Arrow batches of a stream: schema, conversion from and to rows, checks, and the distinct keys of a batch."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from inventory.errors import RunError
from workloads.dictionaries import Codes, dictionary_of, indices_of
from workloads.operators import Row

TYPES = {"int": pa.int64(), "float": pa.float64(), "str": pa.string(), "bytes": pa.binary(), "bool": pa.bool_()}

_PYTHON: Mapping[str, set[type]] = {"int": {int}, "float": {float, int}, "str": {str}, "bytes": {bytes}, "bool": {bool}}
"""Types of values: Arrow would convert others without notice."""


def stream_schema(schema: Mapping[str, str]) -> pa.Schema:
    """Return the Arrow schema of a stream's declared fields.

    Raises:
        RunError: there are none, so that a batch could not have any rows.
    """
    if not schema:
        raise RunError("a stream without fields cannot be processed as columns")
    return _schema(tuple(schema.items()))


@lru_cache(maxsize=256)
def _schema(fields: tuple[tuple[str, str], ...]) -> pa.Schema:
    # The same object for every batch of a stream, which is compared in no time.
    return pa.schema([pa.field(name, TYPES[kind], nullable=False) for name, kind in fields])


def batch_of(schema: Mapping[str, str], rows: Sequence[Row], where: str = "a stream") -> pa.RecordBatch:
    """Convert rows of a stream, named `where` in messages, to a batch.

    Raises:
        RunError: a row has another number of fields, or a value does not fit its column.
    """
    arrow = stream_schema(schema)
    try:
        columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * len(arrow)
    except ValueError:
        columns = ()
    if len(columns) != len(schema):
        raise RunError(f"{where}: a row that does not have the {len(schema)} fields {', '.join(schema)}")
    arrays = [
        _array(values, kind, field, where) for values, kind, field in zip(columns, schema.values(), arrow, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)


_UNFIT = (pa.ArrowException, OverflowError, TypeError, ValueError)


def _array(values: Sequence[Any], kind: str, field: pa.Field, where: str) -> pa.Array:
    try:
        if _PYTHON[kind].issuperset(map(type, values)):
            return pa.array(values, field.type)
    except _UNFIT:
        pass
    raise RunError(_misfit(values, kind, field, where))


def _misfit(values: Sequence[Any], kind: str, field: pa.Field, where: str) -> str:
    for value in values:
        try:
            fits = type(value) in _PYTHON[kind] and len(pa.array([value], field.type)) == 1
        except _UNFIT:
            fits = False
        if not fits:
            return f"{where}, column {field.name!r}: {value!r} does not fit into {field.type}"
    return f"{where}, column {field.name!r}: more than 2 GiB in one batch"


def batch_rows(batch: pa.RecordBatch) -> list[Row]:
    """Convert a batch to rows."""
    return list(zip(*map(_values, batch.columns), strict=True))


def _values(column: pa.Array) -> list[Any]:
    values: list[Any]
    if column.type in (TYPES["int"], TYPES["float"]) and not column.null_count:
        # Only answers have nulls. Of these types, NumPy makes lists in less than half of the time.
        values = column.to_numpy().tolist()
    elif not isinstance(column, pa.DictionaryArray) or len(column.dictionary) > len(column):
        values = decoded(column).to_pylist()
    else:
        entries = column.dictionary.to_pylist()
        values = list(map(entries.__getitem__, indices_of(column).tolist()))
    return values


def plain_batch(batch: pa.RecordBatch, arrow: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the types of `arrow`, without dictionaries."""
    if batch.schema.equals(arrow) or batch.schema.types == arrow.types:
        return batch
    return pa.RecordBatch.from_arrays(list(map(decoded, batch.columns)), schema=arrow)


def decoded(column: pa.Array) -> pa.Array:
    """Return a column without its dictionary, if it has one."""
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def concatenated(schema: Mapping[str, str], chunks: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return batches of one stream as one; a column stays encoded if it is in all of them by the same dictionary."""
    arrow = stream_schema(schema)
    if not chunks:
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in arrow], schema=arrow)
    if all(chunk.schema.equals(arrow) for chunk in chunks):
        return pa.concat_batches(chunks)
    columns = []
    for at in range(len(arrow)):
        parts = [chunk.column(at) for chunk in chunks]
        shared = _of_one_dictionary(parts)
        columns.append(pa.concat_arrays(list(map(decoded, parts))) if shared is None else shared)
    return pa.RecordBatch.from_arrays(columns, names=list(schema))


def _of_one_dictionary(parts: Sequence[pa.Array]) -> pa.DictionaryArray | None:
    """Return the columns as one; None: they are not all encoded by the same growing dictionary."""
    dictionary = dictionary_of(parts[0])
    if dictionary is None or any(dictionary_of(part) is not dictionary for part in parts):
        return None
    indices = pa.concat_arrays([part.indices for part in parts])
    longest = max((part.dictionary for part in parts), key=len)
    return pa.DictionaryArray.from_arrays(indices, longest, safe=False)


def nbytes_of(batch: pa.RecordBatch) -> int:
    """Return the bytes of all columns; a growing dictionary, which other batches share, counts as none."""
    return sum(column.nbytes if dictionary_of(column) is None else column.indices.nbytes for column in batch.columns)


def rows_within(batch: pa.RecordBatch, most: int) -> int:
    """Return how many of the first rows take at most `most` bytes without dictionaries; at least one.

    Only dictionaries are looked at: a few bytes of indices can stand for any number of copies of a long entry. What
    obviously takes less than a sixteenth of `most` is not counted.
    """
    encoded = [column for column in batch.columns if isinstance(column, pa.DictionaryArray)]
    sizes = [_decoded_sizes(column, most // (16 * len(encoded))) for column in encoded]
    some = [each for each in sizes if each is not None]
    if not some or not batch.num_rows:
        return int(batch.num_rows)
    return max(1, int(np.searchsorted(np.cumsum(np.sum(some, axis=0)), most, side="right")))


def _decoded_sizes(column: pa.DictionaryArray, least: int) -> npt.NDArray[np.int64] | None:
    """Return the bytes of each row's entry; None: even if all were the longest, they would be `least` at most."""
    dictionary = dictionary_of(column)
    if dictionary is not None and dictionary.longest * len(column) <= least:
        return None
    entries = column.dictionary
    offsets = np.frombuffer(entries.buffers()[1], np.int32)[entries.offset : entries.offset + len(entries) + 1]
    return np.diff(offsets).astype(np.int64)[indices_of(column)]


def checked_batch(batch: Any, arrow: pa.Schema, who: str, known: Sequence[pa.Array] = ()) -> pa.RecordBatch:
    """Return a batch that an operator has emitted, without dictionaries other than growing ones and those of its input.

    Those are `known`.

    Raises:
        RunError: it is no batch of the stream's schema, or has nulls or wrong indices; the message begins with `who`.
    """
    if not isinstance(batch, pa.RecordBatch):
        raise RunError(f"{who} emitted {type(batch).__name__}, expected a RecordBatch or a list of rows")
    if batch.schema.equals(arrow):
        _check_nulls(batch.columns, arrow, who)
        return batch
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if isinstance(column, pa.DictionaryArray) and not _has_entries(column):
            raise RunError(f"{who} emitted indices beyond the dictionary of the column {name!r}")
    columns = [column if _is_shared(column, known) else decoded(column) for column in batch.columns]
    if batch.schema.names != arrow.names or list(map(_type_of_values, columns)) != arrow.types:
        got = ", ".join(f"{field.name}: {field.type}" for field in batch.schema)
        wanted = ", ".join(f"{field.name}: {field.type}" for field in arrow)
        raise RunError(f"{who} emitted columns ({got}), expected ({wanted})")
    _check_nulls(columns, arrow, who)
    return pa.RecordBatch.from_arrays(columns, names=arrow.names)


def _check_nulls(columns: Sequence[pa.Array], arrow: pa.Schema, who: str) -> None:
    for at, column in enumerate(columns):
        if column.null_count:
            raise RunError(f"{who} emitted nulls in the column {arrow.names[at]!r}")


def dictionaries_of(batch: pa.RecordBatch) -> list[pa.Array]:
    """Return the dictionaries of columns that have one."""
    return [column.dictionary for column in batch.columns if isinstance(column, pa.DictionaryArray)]


def _is_shared(column: pa.Array, known: Sequence[pa.Array]) -> bool:
    """Return whether a column has a growing dictionary, or one of `known` itself, whose entries are distinct."""
    if not isinstance(column, pa.DictionaryArray) or column.indices.type != pa.int32() or column.null_count:
        return False
    place = _place_of(column.dictionary)
    if any(_place_of(dictionary) == place for dictionary in known):
        return True
    return dictionary_of(column) is not None


def _has_entries(column: pa.DictionaryArray) -> bool:
    """Return whether all indices of a column are those of entries; reading others would read any memory."""
    if column.null_count:
        column = column.drop_null()
    indices = indices_of(column)
    return not len(indices) or bool(indices.min() >= 0 and indices.max() < len(column.dictionary))


def _place_of(array: pa.Array) -> tuple[Any, ...]:
    return array.type, array.offset, len(array), *(buffer and buffer.address for buffer in array.buffers())


def _type_of_values(column: pa.Array) -> pa.DataType:
    return column.type.value_type if isinstance(column, pa.DictionaryArray) else column.type


class Distinct(NamedTuple):
    """The distinct values of a column: `values[codes[i]]` is that of row i."""

    codes: Codes
    values: pa.Array


def distinct(column: pa.Array) -> Distinct:
    """Return the distinct values of a column without nulls, each of which some row has.

    Floats are told apart by their bits. The dictionary of a column is used as it is, if it has no other entries: a part
    of a batch has the dictionary of the whole.
    """
    if isinstance(column, pa.DictionaryArray):
        return _used(indices_of(column).astype(np.intp), column.dictionary)
    if pa.types.is_floating(column.type):
        bits = column.to_numpy().view(np.int64)
        codes, values = distinct(pa.array(bits))
        return Distinct(codes, pa.array(values.to_numpy().view(np.float64)))
    encoded = column.dictionary_encode()
    return Distinct(encoded.indices.to_numpy().astype(np.intp), encoded.dictionary)


def _used(codes: Codes, values: pa.Array) -> Distinct:
    used = np.zeros(len(values), bool)
    used[codes] = True
    if used.all():
        return Distinct(codes, values)
    return Distinct((np.cumsum(used) - 1)[codes], values.filter(pa.array(used)))


def counted(column: pa.Array) -> Iterator[tuple[Any, int]]:
    """Return the distinct values of a column without nulls, with the number of rows that have each."""
    codes, values = distinct(column)
    return zip(values.to_pylist(), np.bincount(codes, minlength=len(values)).tolist(), strict=True)


class Keys(NamedTuple):
    """The distinct keys of a batch: row i has key number `codes[i]`; `owners[k]` is the executor that owns key k."""

    codes: Codes
    owners: Codes

    @property
    def targets(self) -> Codes:
        """Owner of each row's key."""
        return self.owners[self.codes]


def keys_of(columns: Sequence[pa.Array], owner: Callable[[Any], int]) -> Keys:
    """Return the distinct keys of a batch and their owners, determined once per distinct key.

    Args:
        columns: of the key's fields.
        owner: of a key: of a value if there is one column, else of a tuple of values.
    """
    distinct_cells = list(map(distinct, columns))
    if len(distinct_cells) == 1:
        return Keys(distinct_cells[0].codes, owners_of(distinct_cells[0].values.to_pylist(), owner))
    codes, first = _numbered(distinct_cells[0].codes, len(distinct_cells[0].values))
    for more in distinct_cells[1:]:
        # Dense again after each field, so that the product cannot overflow.
        codes, first = _numbered(codes * len(more.values) + more.codes, len(first) * len(more.values))
    fields = [each.values.take(pa.array(each.codes[first])).to_pylist() for each in distinct_cells]
    return Keys(codes, owners_of(list(zip(*fields, strict=True)), owner))


class CellTable:
    """Numbers of keys of small whole numbers, kept in a table with a cell for every key up to the highest."""

    MOST_CELLS = 1 << 18

    def __init__(self, fields: int, number: Callable[[tuple[int, ...]], int]) -> None:
        """Create a table for keys of so many fields; `number` returns that of a key, and is called once per key."""
        self._number = number
        self._table: npt.NDArray[np.intp] = np.full((0,) * fields, -1, np.intp)

    def of(self, columns: Sequence[npt.NDArray[np.int64]]) -> Codes | None:
        """Return the number of each row's key, at least one row; None if a key is negative or the table too large."""
        shape = [max(have, int(part.max()) + 1) for have, part in zip(self._table.shape, columns, strict=True)]
        if min(int(part.min()) for part in columns) < 0 or math.prod(shape) > self.MOST_CELLS:
            return None
        if tuple(shape) != self._table.shape:
            larger = np.full(shape, -1, np.intp)
            larger[tuple(map(slice, self._table.shape))] = self._table
            self._table = larger
        places = tuple(columns)
        numbers: Codes = self._table[places]
        missing = np.flatnonzero(numbers < 0)
        if not len(missing):
            return numbers
        for key in dict.fromkeys(zip(*(part[missing].tolist() for part in columns), strict=True)):
            self._table[key] = self._number(key)
        return self._table[places]


def _numbered(codes: Codes, below: int) -> tuple[Codes, Codes]:
    """Return codes, all less than `below`, without gaps, and for each of the new ones a row that has it."""
    if below > 8 * len(codes):
        _, first, dense = np.unique(codes, return_index=True, return_inverse=True)
        return dense, first
    # Without sorting, which takes five times as long.
    row_of = np.full(below, -1, np.intp)
    row_of[codes] = np.arange(len(codes))
    used = np.flatnonzero(row_of >= 0)
    number = np.empty(below, np.intp)
    number[used] = np.arange(len(used))
    return number[codes], row_of[used]


def owners_of(keys: Sequence[Any], owner: Callable[[Any], int]) -> Codes:
    """Return the owner of each key."""
    return np.fromiter(map(owner, keys), np.intp, len(keys))


def ranks_of(codes: Codes, numbers: Codes) -> Codes:
    """Return, for each row, how many rows before it have the same code; `numbers` are the rows of each code."""
    order = np.argsort(codes.astype(np.uint16) if len(numbers) <= 1 << 16 else codes, kind="stable")
    ranks = np.empty(len(codes), np.intp)
    ranks[order] = np.arange(len(codes)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    return ranks


def rows_per_target(targets: Codes, count: int) -> list[Codes]:
    """Return the numbers of the rows for each of `count` targets, rising."""
    if count <= 4:
        return [np.flatnonzero(targets == target) for target in range(count)]
    small = targets.astype(np.uint16) if count <= 1 << 16 else targets
    order = np.argsort(small, kind="stable")
    return np.split(order, np.cumsum(np.bincount(targets, minlength=count))[:-1])

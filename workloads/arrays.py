"""Arrow batches of a stream: schema, conversion from and to rows, checks, and the distinct keys of a batch."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from inventory.errors import RunError
from workloads.operators import Row

TYPES = {"int": pa.int64(), "float": pa.float64(), "str": pa.string(), "bytes": pa.binary(), "bool": pa.bool_()}

_PYTHON: Mapping[str, set[type]] = {"int": {int}, "float": {float, int}, "str": {str}, "bytes": {bytes}, "bool": {bool}}
"""Types of values: Arrow would convert others without notice."""

Codes = npt.NDArray[np.intp]


def schema_of(schema: Mapping[str, str]) -> pa.Schema:
    """Return the Arrow schema of a stream's declared fields.

    Raises:
        RunError: there are none, so that a batch could not have any rows.
    """
    if not schema:
        raise RunError("a stream without fields cannot be processed as columns")
    return pa.schema([pa.field(name, TYPES[kind], nullable=False) for name, kind in schema.items()])


def batch_of(schema: Mapping[str, str], rows: Sequence[Row], where: str = "a stream") -> pa.RecordBatch:
    """Convert rows of a stream, named `where` in messages, to a batch.

    Raises:
        RunError: a row has another number of fields, or a value does not fit its column.
    """
    arrow = schema_of(schema)
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


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    """Convert a batch to rows."""
    return list(zip(*map(_values, batch.columns), strict=True))


def _values(column: pa.Array) -> list[Any]:
    if not isinstance(column, pa.DictionaryArray):
        values: list[Any] = column.to_pylist()
        return values
    entries = column.dictionary.to_pylist()
    return list(map(entries.__getitem__, column.indices.to_numpy().tolist()))


def plain(batch: pa.RecordBatch, arrow: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the types of `arrow`, without dictionaries."""
    if batch.schema.types == arrow.types:
        return batch
    return pa.RecordBatch.from_arrays(list(map(decoded, batch.columns)), schema=arrow)


def decoded(column: pa.Array) -> pa.Array:
    """Return a column without its dictionary, if it has one."""
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def concatenated(schema: Mapping[str, str], chunks: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return batches of one stream as one; a column stays dictionary-encoded if it is in all of them."""
    arrow = schema_of(schema)
    if not chunks:
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in arrow], schema=arrow)
    columns = []
    for at in range(len(arrow)):
        parts = [chunk.column(at) for chunk in chunks]
        if not all(isinstance(part, pa.DictionaryArray) for part in parts):
            parts = list(map(decoded, parts))
        columns.append(pa.concat_arrays(parts))
    return pa.RecordBatch.from_arrays(columns, names=list(schema))


def checked(batch: Any, arrow: pa.Schema, who: str) -> pa.RecordBatch:
    """Return a batch that an operator has emitted, without dictionaries.

    Raises:
        RunError: it is no batch of the stream's schema, or has nulls; the message begins with `who`.
    """
    if not isinstance(batch, pa.RecordBatch):
        raise RunError(f"{who} emitted {type(batch).__name__}, expected a RecordBatch or a list of rows")
    columns = list(map(decoded, batch.columns))
    if batch.schema.names != arrow.names or [column.type for column in columns] != arrow.types:
        got = ", ".join(f"{field.name}: {field.type}" for field in batch.schema)
        wanted = ", ".join(f"{field.name}: {field.type}" for field in arrow)
        raise RunError(f"{who} emitted columns ({got}), expected ({wanted})")
    for name, column in zip(arrow.names, columns, strict=True):
        if column.null_count:
            raise RunError(f"{who} emitted nulls in the column {name!r}")
    return pa.RecordBatch.from_arrays(columns, schema=arrow)


class Distinct(NamedTuple):
    """The distinct values of a column: `values[codes[i]]` is that of row i."""

    codes: Codes
    values: pa.Array


def distinct(column: pa.Array) -> Distinct:
    """Return the distinct values of a column without nulls, in the order in which they first appear.

    Floats are told apart by their bits. A dictionary that the column has is used as it is.
    """
    if isinstance(column, pa.DictionaryArray):
        return Distinct(column.indices.to_numpy().astype(np.intp), column.dictionary)
    if pa.types.is_floating(column.type):
        bits = column.to_numpy().view(np.int64)
        codes, values = distinct(pa.array(bits))
        return Distinct(codes, pa.array(values.to_numpy().view(np.float64)))
    encoded = column.dictionary_encode()
    return Distinct(encoded.indices.to_numpy().astype(np.intp), encoded.dictionary)


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
    found = list(map(distinct, columns))
    if len(found) == 1:
        return Keys(found[0].codes, owners_of(found[0].values.to_pylist(), owner))
    codes = found[0].codes
    for more in found[1:]:
        # Dense again after each field, so that the product cannot overflow.
        _, codes = np.unique(codes * len(more.values) + more.codes, return_inverse=True)
    _, first = np.unique(codes, return_index=True)
    fields = [each.values.take(pa.array(each.codes[first])).to_pylist() for each in found]
    return Keys(codes, owners_of(list(zip(*fields, strict=True)), owner))


def owners_of(keys: Sequence[Any], owner: Callable[[Any], int]) -> Codes:
    """Return the owner of each key."""
    return np.fromiter(map(owner, keys), np.intp, len(keys))


def parts_of(targets: Codes, count: int) -> list[Codes]:
    """Return the numbers of the rows for each of `count` targets, rising."""
    small = targets.astype(np.uint16) if count <= 1 << 16 else targets
    order = np.argsort(small, kind="stable")
    return np.split(order, np.cumsum(np.bincount(targets, minlength=count))[:-1])

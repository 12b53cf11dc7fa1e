"""Random streams of rows, and the same rows as columns, in chunks and with dictionaries."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import pyarrow as pa
from hypothesis import strategies as st

from workloads.arrays import batch_of
from workloads.columns import Columns
from workloads.dictionaries import DictionaryEncoder
from workloads.operators import Row

VALUES = {
    "int": st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3),
    "float": st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, 1.0]),
    "str": st.text(max_size=3) | st.sampled_from(["to", "be", ""]),
    "bytes": st.binary(max_size=3) | st.sampled_from([b"x", b""]),
    "bool": st.booleans(),
}

Stream = tuple[Mapping[str, str], list[Row]]


@st.composite
def streams(draw: st.DrawFn, most: int = 30) -> Stream:
    """Draw a schema and rows."""
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    rows = draw(st.lists(st.tuples(*(VALUES[kind] for kind in kinds)), min_size=1, max_size=most))
    return {f"f{at}": kind for at, kind in enumerate(kinds)}, rows


class Encoders:
    """Dictionary encoders that keep their dictionaries from batch to batch."""

    def __init__(self) -> None:
        self._of: dict[str, DictionaryEncoder] = {}

    def encoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with its str and bytes columns encoded by growing dictionaries."""
        return pa.RecordBatch.from_arrays([*map(self._encoded, batch.schema, batch.columns)], names=batch.schema.names)

    def _encoded(self, field: pa.Field, column: pa.Array) -> pa.Array:
        if not is_text(column):
            return column
        encoder = self._of.setdefault(field.name, DictionaryEncoder(field.type))
        codes = encoder.codes_of(column)
        assert codes is not None
        return pa.DictionaryArray.from_arrays(pa.array(codes), encoder.dictionary.values)


def in_chunks(
    schema: Mapping[str, str],
    rows: Sequence[Row],
    cuts: Sequence[int],
    encoded: Sequence[bool],
    encoders: Encoders | None = None,
) -> Columns:
    """Return the rows as columns, with a new chunk at each cut.

    Columns of str and bytes in chunk i have a dictionary if `encoded[i]`. Every other dictionary is that of all rows
    and therefore has entries without a row in its chunk; with `encoders`, all dictionaries grow from chunk to chunk.
    """
    borders = [0, *sorted(cut for cut in set(cuts) if 0 < cut < len(rows)), len(rows)]
    whole = batch_of(schema, rows)
    chunks = []
    for at, (start, stop) in enumerate(pairwise(borders)):
        # A slice of a larger batch, whose buffers start elsewhere.
        chunk = whole.slice(start, stop - start)
        if encoded[at % len(encoded)] and encoders is not None:
            chunk = encoders.encoded(chunk)
        elif encoded[at % len(encoded)]:
            chunk = with_dictionaries(whole).slice(start, stop - start) if at % 2 else with_dictionaries(chunk)
        chunks.append(chunk)
    return Columns(schema, *chunks)


def with_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with all str and bytes columns dictionary-encoded."""
    columns = [column.dictionary_encode() if is_text(column) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def is_text(column: pa.Array) -> bool:
    """Return whether it is a plain column of str or bytes."""
    return bool(pa.types.is_string(column.type) or pa.types.is_binary(column.type))


CUTS = st.lists(st.integers(0, 30), max_size=3)
ENCODED = st.lists(st.booleans(), min_size=1, max_size=3)


def exact_values(rows: Sequence[Row]) -> list[list[tuple[type, str]]]:
    """Return rows with field types and float bits, because 1 == 1.0 == True and 0.0 == -0.0."""
    return [[(type(value), value.hex() if isinstance(value, float) else repr(value)) for value in row] for row in rows]

"""Coverage-guided fuzzing of received columns: what the codec accepts must be safe to read.

    python tests/fuzz_columns.py [-max_total_time=600] [other options of libFuzzer] [FOLDER]

An input is a byte that selects one of the schemas and, by its highest bit, whether a frame with a dictionary has come
before, a byte with the number of rows, and a frame's payload. Without
FOLDER, for inputs that reach new code, all begin at the valid frames below. A crash ends with a file that repeats it:
python tests/fuzz_columns.py FILE.
"""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(
    include=["agents.worker.wire.columns", "workloads.arrays", "workloads.columns", "workloads.dictionaries"]
):
    from agents.worker.wire.columns import ColumnCodec
    from agents.worker.wire.frame import CodecError
    from workloads.arrays import TYPES, batch_of
    from workloads.columns import Columns
    from workloads.dictionaries import DictionaryEncoder

import numpy as np
import pyarrow as pa

SCHEMAS = ({"s": "str"}, {"b": "bytes", "i": "int"}, {"i": "int", "f": "float", "s": "str", "b": "bytes", "t": "bool"})
VALUES = {"int": 7, "float": 0.5, "str": "vä", "bytes": b"\xff", "bool": True}
ROWS = 6
PRIMED = 0x80


def check(data: bytes) -> None:
    """Decode an input, and read all that was decoded in each way in which the data plane does."""
    if len(data) < 2:
        return
    number, count = data[0] % PRIMED % len(SCHEMAS), data[1] + 1
    codec = ColumnCodec(SCHEMAS[number])
    if data[0] & PRIMED:
        codec.decode(memoryview(FIRST[number]), ROWS)
    try:
        columns = codec.decode(memoryview(data)[2:], count)
    except CodecError:
        return
    rows = columns.to_rows()
    assert len(rows) == len(columns) == count
    columns.plain().validate(full=True)
    columns.take(np.arange(count)[::-1]).batch().validate(full=True)
    sent = b"".join(codec.encode(columns).pieces(0))
    assert repr(ColumnCodec(codec.schema).decode(memoryview(sent), count).to_rows()) == repr(rows)


def growing(schema: dict[str, str]) -> list[bytes]:
    """Two frames of a stream, the second with the dictionaries of the first and one more entry in each."""
    codec, found = ColumnCodec(schema), []
    encoders = {kind: DictionaryEncoder(TYPES[kind]) for kind in ("str", "bytes")}
    for more in ({}, {"str": "more", "bytes": b"more"}):
        rows = [tuple((VALUES | (more if at % 2 else {}))[kind] for kind in schema.values()) for at in range(ROWS)]
        columns = [
            encoders[kind].encode(column) if kind in encoders else column
            for kind, column in zip(schema.values(), batch_of(schema, rows).columns, strict=True)
        ]
        encoded = codec.encode(Columns(schema, pa.RecordBatch.from_arrays(columns, names=list(schema))))
        codec.note_sent(encoded)
        found.append(b"".join(encoded.pieces(0)))
    return found


def seeds() -> list[bytes]:
    """Valid inputs: every schema, without dictionaries, with them, and with those of a frame before."""
    found = []
    for number, schema in enumerate(SCHEMAS):
        batch = batch_of(schema, [tuple(VALUES[kind] for kind in schema.values())] * ROWS)
        encoded = [
            column.dictionary_encode() if kind in ("str", "bytes") else column
            for kind, column in zip(schema.values(), batch.columns, strict=True)
        ]
        for columns in (batch.columns, encoded):
            one = Columns(schema, pa.RecordBatch.from_arrays(columns, names=list(schema)))
            found.append(bytes([number, ROWS - 1]) + b"".join(ColumnCodec(schema).encode(one).pieces(0)))
        found += [
            bytes([flag | number, ROWS - 1]) + sent for flag, sent in zip((0, PRIMED), growing(schema), strict=True)
        ]
    return found


FIRST = [growing(schema)[0] for schema in SCHEMAS]


def main() -> None:
    """Write the seeds, and fuzz."""
    for seed in seeds():
        check(seed)
    with tempfile.TemporaryDirectory() as name:
        for number, seed in enumerate(seeds()):
            Path(name, str(number)).write_bytes(seed)
        given = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
        atheris.Setup([*sys.argv, *([] if any(map(Path.is_file, map(Path, given))) else [name])], check)
        atheris.Fuzz()


if __name__ == "__main__":
    main()

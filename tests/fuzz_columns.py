"""Coverage-guided fuzzing of received columns: what the codec accepts must be safe to read.

    python tests/fuzz_columns.py [-max_total_time=600] [other options of libFuzzer] [FOLDER]

An input is a byte that selects one of the schemas, a byte with the number of rows, and a frame's payload. Without
FOLDER, for inputs that reach new code, all begin at the valid frames below. A crash ends with a file that repeats it:
python tests/fuzz_columns.py FILE.
"""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["agents.worker.wire.columns", "workloads.arrays", "workloads.columns"]):
    from agents.worker.wire.columns import ColumnCodec
    from agents.worker.wire.frame import CodecError
    from workloads.arrays import batch_of
    from workloads.columns import Columns

import numpy as np
import pyarrow as pa

SCHEMAS = ({"s": "str"}, {"b": "bytes", "i": "int"}, {"i": "int", "f": "float", "s": "str", "b": "bytes", "t": "bool"})
VALUES = {"int": 7, "float": 0.5, "str": "vä", "bytes": b"\xff", "bool": True}
CODECS = [ColumnCodec(schema) for schema in SCHEMAS]


def check(data: bytes) -> None:
    """Decode an input, and read all that was decoded in each way in which the data plane does."""
    if len(data) < 2:
        return
    codec, count = CODECS[data[0] % len(CODECS)], data[1] + 1
    try:
        columns = codec.decode(memoryview(data)[2:], count)
    except CodecError:
        return
    rows = columns.to_rows()
    assert len(rows) == len(columns) == count
    columns.plain().validate(full=True)
    columns.take(np.arange(count)[::-1]).batch().validate(full=True)
    sent = b"".join(codec.encode(columns).pieces(0))
    assert repr(codec.decode(memoryview(sent), count).to_rows()) == repr(rows)


def seeds() -> list[bytes]:
    """Valid inputs: every schema, with and without dictionaries."""
    found = []
    for number, schema in enumerate(SCHEMAS):
        batch = batch_of(schema, [tuple(VALUES[kind] for kind in schema.values())] * 6)
        encoded = [
            column.dictionary_encode() if kind in ("str", "bytes") else column
            for kind, column in zip(schema.values(), batch.columns, strict=True)
        ]
        for columns in (batch.columns, encoded):
            one = Columns(schema, pa.RecordBatch.from_arrays(columns, names=list(schema)))
            found.append(bytes([number, 5]) + b"".join(CODECS[number].encode(one).pieces(0)))
    return found


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

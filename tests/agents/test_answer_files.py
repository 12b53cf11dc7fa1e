"""Parts of the answer are read back as sinks gave them, whether as rows or as columns."""

from collections.abc import Mapping
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from agents.worker.process.answer_files import read_answer_rows, write_answer_rows
from workloads.columns import Columns

FIELDS = {"word": "str", "count": "int"}

ANSWER_VALUES = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(allow_nan=False),
    "str": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    "bytes": st.binary(max_size=5),
    "bool": st.booleans(),
}


def rows_of(path: Path, fields: Mapping[str, str] = FIELDS) -> list[tuple[object, ...]]:
    table = read_answer_rows(path, fields)
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@given(st.lists(st.tuples(*(st.none() | kind for kind in ANSWER_VALUES.values())), max_size=5))
def test_rows_of_an_answer_are_read_back_with_their_nulls(tmp_path_factory, rows) -> None:
    path = tmp_path_factory.mktemp("answer") / "x.part"
    fields = {kind: kind for kind in ANSWER_VALUES}
    write_answer_rows(path, "sink[0]", fields, rows)
    assert rows_of(path, fields) == rows


def test_columns_of_an_answer_are_read_back_as_rows_are(tmp_path: Path) -> None:
    rows = [("a", 1), ("b", 2)]
    for name, written in (("rows", rows), ("columns", Columns.of_rows(FIELDS, rows))):
        write_answer_rows(tmp_path / name, "sink[0]", FIELDS, written)
        assert rows_of(tmp_path / name) == rows

"""Column bolts of smart home have the state and predictions of row bolts, to the last bit."""

from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from inventory.times import NS
from workloads import columns as column_operators
from workloads.arrays import batch_of, batch_rows
from workloads.columns import ColumnBatch
from workloads.key_groups import KEY_GROUPS
from workloads.operator_state import OperatorState
from workloads.operators import Batch
from workloads.smart_home.columns import ColumnHouseLoads, ColumnLoads, ColumnPredictionSink
from workloads.smart_home.loads import READING, TABLES, WORK_READING, HouseLoads, LoadPredictor, PredictionSink
from workloads.smart_home.query import QueryParams

B = 1377986400
LOAD, WORK = 1, 0


def regrouped(operator: Any, again: Any) -> Any:
    """Return another operator with the state of one, restored by key groups, part by part."""
    whole, part = OperatorState(operator).snapshot(), OperatorState(again)
    for first in range(3):
        part.put_groups(whole, range(first, KEY_GROUPS, 3), fields=1)
    part.loaded()
    return again


@given(
    st.lists(
        st.one_of(
            st.just("tick"),
            st.just("snapshot"),
            st.just("groups"),
            st.tuples(
                st.booleans(),
                st.lists(
                    st.tuples(
                        st.sampled_from([0, 1, 3, 2**40]),
                        st.integers(0, 2),
                        st.sampled_from([-1, 0, 2]),
                        st.sampled_from([LOAD, WORK]),
                        st.floats(0, 3000),
                    ),
                    min_size=1,
                    max_size=12,
                ),
            ),
        ),
        max_size=12,
    ),
    st.sampled_from(["none", "work"]),
    st.booleans(),
    st.sampled_from([0, 512]),
)
def test_column_loads_are_those_of_rows_to_the_last_bit(
    events: list[Any], fill: str, houses: bool, rows_below: int
) -> None:
    query = QueryParams(slices=(60, 90), day_s=540, fill=fill)
    kinds = (HouseLoads, ColumnHouseLoads) if houses else (LoadPredictor, ColumnLoads)
    rows, columns = (kind(query) for kind in kinds)
    schema = WORK_READING if fill == "work" else READING
    now, seq = B, 0
    for event in events:
        if event == "tick":
            now += 30
            with mock.patch.object(column_operators, "rows_below", return_value=rows_below):
                emitted: Any = columns.on_tick(now * NS)["default"]
            assert rows.on_tick(now * NS)["default"] == (emitted if isinstance(emitted, list) else batch_rows(emitted))
        elif event == "groups":
            rows, columns = (regrouped(each, kind(query)) for each, kind in zip((rows, columns), kinds, strict=True))
        elif event == "snapshot":
            assert OperatorState(rows).snapshot() == OperatorState(columns).snapshot()
        else:
            as_columns, readings = event
            given_rows = [(*reading, now + 3, seq + at)[: len(schema)] for at, reading in enumerate(readings)]
            seq += len(readings)
            rows.process(Batch("source", "default", given_rows))
            if as_columns:
                columns.process_columns(ColumnBatch("source", "default", batch_of(schema, given_rows)))
            else:
                columns.process(Batch("source", "default", given_rows))
    combined = columns.combine_columns(
        batch_of(schema, [(0, 0, at, at % 2, 1.0, 5, at)[: len(schema)] for at in range(9)])
    )
    assert batch_rows(combined) == rows.combine([(0, 0, at, at % 2, 1.0, 5, at)[: len(schema)] for at in range(9)])


@given(
    st.lists(
        st.one_of(
            st.sampled_from(["settled", "snapshot"]),
            st.tuples(st.sampled_from(sorted(TABLES)), st.integers(1, 4), st.booleans()),
        ),
        max_size=9,
    )
)
def test_a_column_sink_keeps_every_prediction_once_as_a_row_sink_does(events: list[Any]) -> None:
    rows, columns, expected = PredictionSink(), ColumnPredictionSink(), list[Any]()
    for at, event in enumerate(events):
        if event == "settled":
            found = [[*map(list, (table.settled() for table in sink.tables()))] for sink in (rows, columns)]
            assert [*map(sorted, found[0])] == [*map(sorted, found[1])]
            expected = []
        elif event == "snapshot":
            state = OperatorState(columns).snapshot()
            columns = ColumnPredictionSink()
            OperatorState(columns).restore(state)
        else:
            table, count, as_columns = event
            schema = TABLES[table]
            predicted = [(at, *range(number, number + len(schema) - 3), number / 3, number) for number in range(count)]
            expected += predicted
            rows.process(Batch(table, "default", predicted))
            if as_columns:
                columns.process_columns(ColumnBatch(table, "default", batch_of(schema, predicted)))
            else:
                columns.process(Batch(table, "default", predicted))
    settled = [[*map(list, (table.settled() for table in sink.tables()))] for sink in (rows, columns)]
    assert [*map(sorted, settled[0])] == [*map(sorted, settled[1])]
    assert sorted(row for table in settled[1] for row in table) == sorted(expected)

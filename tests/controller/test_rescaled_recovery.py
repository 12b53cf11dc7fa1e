"""Checkpoints restored by other numbers of executors: the answer stays the same, indivisible state is refused."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from rescaled_epochs import RescaledEpochs
from taxi_rows import row, write_rows

from inventory.errors import RunError
from workloads.apps.wordcount import WordCount, WordCountParams
from workloads.apps.wordcount_operators import Count
from workloads.data.text import LineSpout
from workloads.operator_state import OperatorState
from workloads.operators import Batch, Bolt, Emitted, Operator, Row, Spout
from workloads.topology import GroupingKind, Input, Topology
from workloads.workload import Workload, load_workload

TEXT = "call me ishmael some years ago never mind how long precisely having little or no money in my purse\n" * 9


def texts(folder: Path) -> Mapping[str, Any]:
    (folder / "text.txt").write_text(TEXT)
    return {"text": str(folder / "text.txt"), "ackers": 0}


def wordcount(folder: Path) -> Workload:
    return load_workload("wordcount", {**texts(folder), "parallelism": {"spout": 2, "split": 2, "count": 4}})


def combined(folder: Path) -> Workload:
    few = {"spout": 2, "split": 2, "count": 4}
    return load_workload("wordcount", {**texts(folder), "parallelism": few, "combine": True})


def exclamation(folder: Path) -> Workload:
    return load_workload("exclamation", {**texts(folder), "parallelism": {"word": 2, "exclaim1": 2, "exclaim2": 2}})


def top_n(folder: Path) -> Workload:
    few = {"read": 2, "count": 2, "rank": 2, "merge": 2}
    windows = {"n": 3, "window_s": 0.3, "slide_s": 0.1, "words_per_s": 100}
    return load_workload("top-n", {**texts(folder), "parallelism": few, **windows})


def trips(folder: Path, step: tuple[float, float] = (5986, 4491.556)) -> Path:
    rows = [
        row(60 + 10 * k, ((k * k) % 7 + 1, 1), (k % 5 + 1, k % 3 + 1), f"taxi {k % 11}", f"{k % 9}.00", step=step)
        for k in range(1200)
    ]
    return write_rows(folder / "trips.csv", rows)


def taxi(folder: Path) -> Workload:
    few = {"parse": 2, "route": 2, "count": 3, "rank": 2}
    return load_workload("taxi", {"input": str(trips(folder)), "parallelism": few, "answer": "both"})


def taxi_profit(folder: Path) -> Workload:
    few = {"parse": 2, "amount": 2, "profit": 3, "taxi": 3, "value": 2}
    path = trips(folder, (2993, 2245.778))
    return load_workload("taxi-profit", {"input": str(path), "parallelism": few, "answer": "both"})


def smart_home(folder: Path) -> Workload:
    lines = [f"{k},{1_377_986_400 + 2 * k},{k % 23},{k % 3 and 1},{k % 4},{k % 2},{k % 3}" for k in range(300)]
    path = write_rows(folder / "readings.csv", lines)
    few = {"source": 2, "house": 2, "plug": 3, "sink": 2}
    slices = {"slices": [60, 120], "day_s": 360, "fill": "work"}
    return load_workload("smart-home", {"input": str(path), "parallelism": few, **slices})


ELASTIC: Mapping[str, tuple[Callable[[Path], Workload], tuple[str, ...]]] = {
    "wordcount": (wordcount, ("split", "count")),
    "combined": (combined, ("count",)),
    "exclamation": (exclamation, ("exclaim1", "exclaim2")),
    "top-n": (top_n, ("count", "rank", "merge")),
    "taxi": (taxi, ("route", "count", "rank", "merge", "log")),
    "taxi-profit": (taxi_profit, ("amount", "profit", "taxi", "value", "merge", "log")),
    "smart-home": (smart_home, ("house", "plug", "sink")),
}
"""Workloads, and their components that can have any number of executors."""


def test_word_counts_are_right_with_four_then_five_then_three_executors(tmp_path: Path) -> None:
    run = RescaledEpochs(wordcount(tmp_path), tmp_path / "inputs", 1)
    verdict = run.run_epochs([{"count": 4}, {"count": 5}, {"count": 3}])
    assert verdict.passed, verdict.message
    assert verdict.checked > 10
    first, second, third = run.specs
    assert (first.stored, second.stored, third.stored) == (
        {},
        {"count": first.divisions["count"]},
        {"count": second.divisions["count"]},
    )
    assert [run for run in second.owners["count"] if run[0] == 4] == [(4, 51)] * 4
    assert {owner for owner, _ in third.owners["count"]} == {0, 1, 2}


@pytest.mark.parametrize("name", sorted(ELASTIC))
def test_the_answer_is_right_after_any_changes_of_the_numbers_of_executors(tmp_path: Path, name: str) -> None:
    make_workload, components = ELASTIC[name]
    for seed in range(2):
        random = Random(seed)  # noqa: S311 - repeatable
        epochs = [{component: random.randint(1, 5) for component in components} for _ in range(3)]
        run = RescaledEpochs(make_workload(tmp_path), tmp_path / "inputs", seed)
        verdict = run.run_epochs([{}, *epochs])
        assert verdict.passed, (epochs, verdict.message)
        assert verdict.checked > 0
        assert any(spec.stored for spec in run.specs)


def test_rows_count_once_although_executors_that_had_processed_them_since_the_checkpoint_are_gone(
    tmp_path: Path,
) -> None:
    for seed in range(3):
        run = RescaledEpochs(wordcount(tmp_path), tmp_path / "inputs", seed)
        assert run.run_epochs([{"split": 4, "count": 4}, {"split": 2, "count": 2}]).passed
        words = sum(count for _, count in run.answer()["counts"])
        assert run.counted == {"split": sum(run.positions.values()), "count": words}, seed
        assert words > 0


SPOUTS = {
    "wordcount": "spout",
    "combined": "spout",
    "exclamation": "word",
    "top-n": "read",
    "taxi": "parse",
    "taxi-profit": "parse",
    "smart-home": "source",
}
RATES: list[Mapping[str, Any]] = [
    {"kind": "max"},
    {"kind": "constant", "tuples_per_s": 3000.0},
    {"kind": "poisson", "tuples_per_s": 3000.0},
    {"kind": "replay", "speedup": 3000.0},
]


def rescaled_sources(folder: Path, name: str, seed: int) -> None:
    make_workload, components = ELASTIC[name]
    folder.mkdir(exist_ok=True)
    random = Random(seed)  # noqa: S311 - repeatable
    rate = RATES[seed % (4 if name in ("top-n", "taxi", "taxi-profit", "smart-home") else 3)]
    sizes = [
        {SPOUTS[name]: size, **{each: random.randint(1, 3) for each in components if random.random() < 0.3}}
        for size in random.sample([1, 3, 4, 5], 3)
    ]
    run = RescaledEpochs(make_workload(folder), folder / "inputs", seed, rate)
    verdict = run.run_epochs([{}, *sizes])
    assert verdict.passed, (name, seed, sizes, run.cuts, verdict.message)
    assert verdict.checked > 0
    assert run.cuts


@pytest.mark.parametrize("name", sorted(ELASTIC))
def test_any_number_of_sources_continues_after_the_same_record(tmp_path: Path, name: str) -> None:
    rescaled_sources(tmp_path, name, sorted(ELASTIC).index(name))


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(ELASTIC))
def test_sources_continue_after_the_same_record_at_any_rate(tmp_path: Path, name: str) -> None:
    for seed in range(7, 12):
        rescaled_sources(tmp_path / str(seed), name, seed)


class Unseekable(Spout):
    """Line spout without `seek`."""

    def __init__(self) -> None:
        self._lines = LineSpout()
        self.open, self.next_batch = self._lines.open, self._lines.next_batch  # type: ignore[method-assign]
        self.snapshot, self.restore = self._lines.snapshot, self._lines.restore  # type: ignore[method-assign]


class UnseekableWordCount(WordCount):
    """Word count whose spout has no `seek`."""

    def operator(self, component: str) -> Operator:
        return Unseekable() if component == "spout" else super().operator(component)


def test_sources_without_seek_keep_their_number(tmp_path: Path) -> None:
    workload = UnseekableWordCount(WordCountParams(**texts(tmp_path), parallelism={"spout": 2, "split": 2, "count": 2}))
    with pytest.raises(RunError, match=r"spout had 2 executors .* keeps that number: its spout has no seek\(\)"):
        RescaledEpochs(workload, tmp_path / "inputs", 1).run_epochs([{}, {"spout": 3}])


def test_sources_that_have_not_emitted_the_first_records_are_not_scaled(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"sources at \d+, \d+ have not emitted the first \d+ records"):
        RescaledEpochs(wordcount(tmp_path), tmp_path / "inputs", 5, RATES[2], aligns=False).run_epochs(
            [{}, {"spout": 3}]
        )


def test_state_is_not_divided_again_if_the_numbers_stay(tmp_path: Path) -> None:
    run = RescaledEpochs(wordcount(tmp_path), tmp_path / "inputs", 2)
    assert run.run_epochs([{}, {}, {}]).passed
    assert [spec.restore for spec in run.specs] == [0, 1, 2]
    assert [spec.stored for spec in run.specs] == [{}, {}, {}]
    assert len({str(spec.owners) for spec in run.specs}) == 1


class Opaque(Bolt):
    """Count without access to the state of single key groups."""

    answer_table, answer_schema = Count.answer_table, Count.answer_schema

    def __init__(self) -> None:
        self._count = Count()

    def process(self, batch: Batch) -> Emitted:
        return self._count.process(batch)

    def answer(self) -> Iterable[Row]:
        return self._count.answer()

    def snapshot(self) -> bytes:
        return OperatorState(self._count).snapshot()

    def restore(self, state: bytes) -> None:
        OperatorState(self._count).restore(state)


class ModifiedWordCount(WordCount):
    """Word count with another bolt or grouping for its counts."""

    count: type[Bolt] = Count
    inputs: tuple[Input, ...] = (Input("split", "fields", ("word",)),)

    def topology(self) -> Topology:
        topology = super().topology()
        components = [replace(c, inputs=self.inputs) if c.id == "count" else c for c in topology.components]
        return replace(topology, components=tuple(components))

    def operator(self, component: str) -> Operator:
        return self.count() if component == "count" else super().operator(component)


@pytest.mark.parametrize(
    ("count", "grouping", "sizes", "why"),
    [
        (Opaque, "fields", {"count": 3}, "count had 2 executors .* not all of its state is KeyedState"),
        (Count, "shuffle", {"count": 3}, "count had 2 executors .* not one of a single key"),
    ],
)
def test_a_component_whose_state_cannot_be_divided_keeps_its_number_of_executors(
    tmp_path: Path, count: type[Bolt], grouping: GroupingKind, sizes: Mapping[str, int], why: str
) -> None:
    workload = ModifiedWordCount(WordCountParams(**texts(tmp_path), parallelism={"spout": 2, "split": 2, "count": 2}))
    workload.count, workload.inputs = count, (Input("split", grouping, ("word",) if grouping == "fields" else ()),)
    with pytest.raises(RunError, match=why):
        RescaledEpochs(workload, tmp_path / "inputs", 1).run_epochs([{}, sizes])
    assert RescaledEpochs(workload, tmp_path / "again", 1).run_epochs([{}, {}]).passed == (grouping == "fields")

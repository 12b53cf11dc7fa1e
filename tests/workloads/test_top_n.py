"""Top-N: answers of all windows, for any number of executors and any order of events."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_run import Limits, run_spec, scripted_run

from agents.protocol import Slot
from inventory.errors import InputError
from workloads.apps.top_n import TABLE, RollingCount, WordTimes
from workloads.operator_state import OperatorState
from workloads.operators import Batch, Context
from workloads.workload import check_runnable, load_workload


def test_the_topology_is_er_stream_s() -> None:
    topology = load_workload("top-n", {}).topology()
    check_runnable(topology)
    assert {c.id: c.parallelism for c in topology.components} == {"read": 4, "count": 8, "rank": 6, "merge": 2}
    assert [(a.id, b.id, i.grouping) for a, b, i in topology.links()] == [
        ("read", "count", "fields"),
        ("count", "rank", "fields"),
        ("rank", "merge", "global"),
    ]


def test_a_worked_example(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a b a c b a d d d d")
    given = {"text": str(tmp_path / "text.txt"), "n": 2, "window_s": 2.0, "slide_s": 1.0, "words_per_s": 2.0}
    workload = load_workload("top-n", given)
    inputs = workload.prepare(tmp_path / "inputs")
    # Slides: a b | a c | b a | d d | d d; each window is two of them.
    assert workload.reference([5, 5], inputs)[TABLE] == [
        (1_000_000_000, 1, "a", 1),
        (1_000_000_000, 2, "b", 1),
        (2_000_000_000, 1, "a", 2),
        (2_000_000_000, 2, "b", 1),
        (3_000_000_000, 1, "a", 2),
        (3_000_000_000, 2, "b", 1),
        (4_000_000_000, 1, "d", 2),
        (4_000_000_000, 2, "a", 1),
        (5_000_000_000, 1, "d", 4),
    ]
    # A source that stops earlier omits words: record 9 is the fifth of the second source.
    assert workload.reference([5, 4], inputs)[TABLE][-1] == (5_000_000_000, 1, "d", 3)


@given(st.integers(1, 5), st.integers(1, 9), st.integers(0, 300))
def test_times_and_counts_are_inverse(of: int, step: int, at: int) -> None:
    for index in range(of):
        times = WordTimes(index, of, step)
        count = times.due_count(at)
        assert times.due_ns(count) > at
        assert count == 0 or times.due_ns(count - 1) <= at


@given(st.lists(st.lists(st.sampled_from("abcd"), max_size=6), max_size=9), st.integers(1, 4), st.integers(0, 8))
def test_a_restored_rolling_count_continues_where_it_was(slides: list[list[str]], length: int, stop: int) -> None:
    bolt, other = RollingCount(3, length), RollingCount(3, length)
    for at, words in enumerate(slides):
        if at == stop:
            state = OperatorState(other).snapshot()
            other = RollingCount(3, length)
            OperatorState(other).restore(state)
        for each in (bolt, other):
            each.process(Batch("read", "default", [(word,) for word in words]))
        assert bolt.on_tick(at) == other.on_tick(at)


@settings(max_examples=25)
@given(
    st.fixed_dictionaries({name: st.integers(1, 3) for name in ("read", "count", "rank", "merge")}),
    st.sampled_from([(1.0, 1.0), (3.0, 1.0), (1.0, 0.25)]),
    st.lists(st.integers(0, 3_000), min_size=20, max_size=120),
    st.integers(0, 2**32),
)
def test_the_answer_is_the_reference(
    tmp_path_factory: pytest.TempPathFactory,
    parallelism: dict[str, int],
    window: tuple[float, float],
    script: list[int],
    seed: int,
) -> None:
    folder = tmp_path_factory.mktemp("top")
    (folder / "text.txt").write_text("the cat and the dog and the bird sing of a cat and a dog")
    given = {"text": str(folder / "text.txt"), "n": 3, "parallelism": parallelism, "words_per_s": 8.0}
    workload = load_workload("top-n", {**given, "window_s": window[0], "slide_s": window[1]})
    topology = workload.topology()
    inputs = workload.prepare(folder / "inputs")
    places = [Slot(f"n{at % 2}", at % 3) for at in range(len(topology.executors))]
    paths = {entry.name: str(entry.path) for entry in inputs}
    with scripted_run(run_spec(topology, places, seed), workload.operator, Limits(), paths) as run:
        for choice in script:
            run.act(choice)
        for spout in run.spouts:
            spout.stop()
        run.run([], seed)
        positions = [spout.position for spout in sorted(run.spouts, key=lambda spout: spout.number)]
        rows = run.answer(TABLE)
    verdict = workload.compare({TABLE: rows}, workload.reference(positions, inputs))
    assert verdict.passed, verdict.message


def test_settled_rows_are_returned_once() -> None:
    merge = load_workload("top-n", {}).operator("merge")
    merge.open(Context("merge", 0, 1))
    merge.process(Batch("rank", "default", [("b", 2), ("a", 2)]))
    merge.on_tick(5)
    assert list(merge.settled()) == [(5, 1, "a", 2), (5, 2, "b", 2)]
    assert list(merge.settled()) == list(merge.answer()) == []


def test_windows_are_whole_numbers_of_slides() -> None:
    with pytest.raises(InputError, match=r"window_s: got 2\.5, expected a multiple of slide_s, 1"):
        load_workload("top-n", {"window_s": 2.5})
    with pytest.raises(InputError, match="slide_s: got 1, in which no word comes"):
        load_workload("top-n", {"words_per_s": 0.5})

"""Exclamation: its bolts, and answers against the reference."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.apps.exclamation import Exclaim, LastExclaim
from workloads.data.row_digest import digest_of
from workloads.data.text import read_records
from workloads.operator_state import OperatorState
from workloads.operators import Batch
from workloads.workload import load_workload

WORDS = st.lists(st.text("ab\u00e9!", min_size=1, max_size=2), min_size=1, max_size=30)


def batch(words):
    return Batch("word", "default", [(word,) for word in words])


@given(WORDS)
def test_exclaim_appends_three_marks_to_every_word(words):
    assert Exclaim().process(batch(words)) == {"default": [(f"{word}!!!",) for word in words]}
    assert Exclaim().snapshot() == b""


@given(WORDS, st.integers(0, 30))
def test_the_sink_answers_with_the_digest_of_its_words_also_after_a_restore(words, cut):
    expected = [digest_of(Counter((f"{word}!!!",) for word in words)).row]
    uninterrupted, first, restored = LastExclaim(), LastExclaim(), LastExclaim()
    assert not uninterrupted.process(batch(words))
    first.process(batch(words[:cut]))
    restored.process(batch(["lost"]))
    OperatorState(restored).restore(OperatorState(first).snapshot())
    restored.process(batch(words[cut:]))
    assert uninterrupted.answer() == restored.answer() == expected


@given(words=WORDS, seed=st.integers(0, 2**32), steps=st.integers(0, 120))
def test_any_course_of_a_run_gives_the_reference_answer(tmp_path_factory, simulate, words, seed, steps):
    folder = tmp_path_factory.mktemp("run")
    (folder / "text.txt").write_bytes(" ".join(words).encode())
    workload = load_workload("exclamation", {"text": str(folder / "text.txt"), "parallelism": {"word": 3}})
    answer, reference = simulate(workload, workload.prepare(folder), seed, steps)
    verdict = workload.compare(answer, reference)
    assert verdict.passed, verdict.message
    assert verdict.checked == 1


def test_real_books_in_the_default_split(shared_data, tmp_path, simulate):
    workload = load_workload("exclamation", {"text": str(shared_data / "text" / "moby-dick.txt.gz")})
    inputs = workload.prepare(tmp_path)
    assert inputs[0].records == 215829
    answer, reference = simulate(workload, inputs, 3, 3000)
    assert workload.compare(answer, reference).passed
    assert len(answer["exclaimed"]) == 2


@given(st.lists(st.integers(0, 40), min_size=10, max_size=10))
@settings(deadline=None)
def test_the_reference_is_the_digest_of_a_plain_walk(tmp_path_factory, positions):
    folder = tmp_path_factory.mktemp("run")
    (folder / "text.txt").write_text("to be or not\nto be, that is the question:")
    workload = load_workload("exclamation", {"text": str(folder / "text.txt")})
    inputs = workload.prepare(folder)
    words = read_records(inputs[0].path)
    walked = Counter(
        (words[(index + k * 10) % len(words)] + "!!!!!!",)
        for index, position in enumerate(positions)
        for k in range(position)
    )
    assert workload.reference(positions, inputs) == {"exclaimed": [digest_of(walked).row]}


@pytest.mark.parametrize("wrong", [["a!", "b!"], ["a!", "b!", "b!"], ["a!", "b!", "c?"], ["a!", "b!", "c!", "c!"], []])
def test_every_wrong_answer_is_found(wrong):
    workload = load_workload("exclamation", {})

    def answer(*parts):
        return {"exclaimed": [digest_of(Counter((word,) for word in part)).row for part in parts]}

    reference = answer(["a!", "b!", "c!"])
    assert workload.compare(answer(["c!"], ["b!", "a!"], []), reference).passed
    verdict = workload.compare(answer(wrong), reference)
    assert not verdict.passed
    assert f"{len(wrong)} words with digest" in verdict.message
    assert "the reference has 3 with" in verdict.message

"""Word count: its bolts, and answers against the reference and other tools."""

import re
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.apps.wordcount_operators import Count, Split
from workloads.data.text import read_records
from workloads.operator_state import OperatorState
from workloads.operators import Batch
from workloads.workload import load_workload

LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=20), max_size=30)


def words_of(split, lines):
    return split.process(Batch("spout", "default", [(line,) for line in lines]))


def count_words(count, words):
    assert not count.process(Batch("split", "default", [(word,) for word in words]))


@given(LINES)
def test_split_gives_each_line_s_words_in_order(lines):
    assert words_of(Split(), lines) == {"default": [(word,) for line in lines for word in line.split()]}


def test_words_are_separated_by_white_space_and_keep_case_and_punctuation():
    lines = ["“Call me  Ishmael.\tSome", "", " ", "years—ago’s\u2003Some some"]
    assert [word for (word,) in words_of(Split(), lines)["default"]] == [
        "“Call", "me", "Ishmael.", "Some", "years—ago’s", "Some", "some"
    ]  # fmt: skip


def test_the_reference_and_the_bolt_agree_on_white_space_for_every_character():
    pairs = [f"a{chr(code)}a" for code in {*range(sys.maxunicode + 1)} - {*range(0xD800, 0xE000)}]
    words = [word for (word,) in words_of(Split(), pairs)["default"]]
    assert words == [word for pair in pairs for word in re.findall(r"\S+", pair)]  # as the reference has it


@given(st.lists(st.lists(st.text("abc", min_size=1, max_size=2)), max_size=10), st.integers(0, 10))
def test_count_keeps_running_totals_across_a_restore(batches, cut):
    uninterrupted, first = Count(), Count()
    for batch in batches:
        count_words(uninterrupted, batch)
    for batch in batches[:cut]:
        count_words(first, batch)
    restored = Count()
    count_words(restored, ["something", "else"])
    OperatorState(restored).restore(OperatorState(first).snapshot())
    for batch in batches[cut:]:
        count_words(restored, batch)
    expected = Counter(word for batch in batches for word in batch)
    assert dict(uninterrupted.answer()) == dict(restored.answer()) == expected


def test_a_snapshot_is_not_changed_by_later_batches():
    count = Count()
    count_words(count, ["a", "b", "a"])
    state = OperatorState(count).snapshot()
    count_words(count, ["a"])
    again = Count()
    OperatorState(again).restore(state)
    assert dict(again.answer()) == {"a": 2, "b": 1}


@given(
    lines=LINES.filter(lambda lines: any(line.split() for line in lines)),
    seed=st.integers(0, 2**32),
    steps=st.integers(0, 120),
    combine=st.booleans(),
)
def test_any_course_of_a_run_gives_the_reference_answer(tmp_path_factory, simulate, lines, seed, steps, combine):
    folder = tmp_path_factory.mktemp("run")
    (folder / "text.txt").write_bytes("\n".join(lines).encode())
    parallelism = {"spout": 3, "split": 2, "count": 4}
    params = {"text": str(folder / "text.txt"), "parallelism": parallelism, "combine": combine}
    workload = load_workload("wordcount", params)
    answer, reference = simulate(workload, workload.prepare(folder), seed, steps)
    verdict = workload.compare(answer, reference)
    assert verdict.passed, verdict.message
    assert verdict.checked == len(answer.get("counts", ()))


@pytest.mark.parametrize("parallelism", [{}, {"spout": 1, "split": 1, "count": 1}])
def test_the_default_text_in_the_default_split(tmp_path, simulate, parallelism):
    workload = load_workload("wordcount", {"parallelism": parallelism})
    answer, reference = simulate(workload, workload.prepare(tmp_path), 7, 3000)
    assert workload.compare(answer, reference).passed
    assert sum(count for _, count in answer["counts"]) > 1000


def test_one_pass_over_real_books_equals_a_count_by_awk(shared_data, tmp_path):
    books = [str(shared_data / "text" / f"{book}.txt.gz") for book in ("moby-dick", "pride-and-prejudice")]
    workload = load_workload("wordcount", {"text": books, "parallelism": {"spout": 1}})
    inputs = workload.prepare(tmp_path)
    reference = dict(workload.reference([inputs[0].records], inputs)["counts"])
    script = r"{ for (i = 1; i <= NF; i++) n[$i]++ } END { for (w in n) print n[w], w }"
    printed = subprocess.run(
        ["awk", script, inputs[0].path], capture_output=True, check=True, env={"LC_ALL": "C"}
    ).stdout.decode()
    other = {word: int(count) for count, word in (line.split(" ", 1) for line in printed.splitlines())}
    assert reference == other
    assert reference["whale"] > 300


@given(st.lists(st.integers(0, 60), min_size=3, max_size=3))
@settings(deadline=None)
def test_the_reference_is_a_plain_count_of_the_records_emitted(tmp_path_factory, positions):
    folder = tmp_path_factory.mktemp("run")
    (folder / "text.txt").write_text("a b a\n\nc\nb c d\na\n")
    workload = load_workload("wordcount", {"text": str(folder / "text.txt"), "parallelism": {"spout": 3}})
    inputs = workload.prepare(folder)
    lines = read_records(inputs[0].path)
    plain = Counter()
    for index, position in enumerate(positions):
        for k in range(position):
            plain.update(lines[(index + 3 * k) % len(lines)].split())
    assert dict(workload.reference(positions, inputs)["counts"]) == plain


def test_the_reference_of_a_long_run_is_a_multiple_of_one_loop(tmp_path):
    workload = load_workload("wordcount", {})
    inputs = workload.prepare(tmp_path)
    records = inputs[0].records
    once = dict(workload.reference([records] * 5, inputs)["counts"])
    often = dict(workload.reference([records * 10**6] * 5, inputs)["counts"])
    assert often == {word: count * 10**6 for word, count in once.items()}
    plain = Counter(" ".join(read_records(inputs[0].path)).split())
    assert once == {word: 5 * count for word, count in plain.items()}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([("a", 3), ("b", 1)], r"\('a',\) = \(3,\), the reference has \(2,\)"),
        ([("a", 2)], r"\('b',\) is missing"),
        ([], r"\('a',\) is missing; \('b',\) is missing"),
        ([("a", 2), ("b", 1), ("c", 1)], r"\('c',\) = \(1,\) is not in the reference"),
        ([("a", 2), ("b", 1), ("a", 2)], r"\('a',\) is in the answer twice"),
    ],
)
def test_every_wrong_answer_is_found_and_explained(wrong, said):
    workload = load_workload("wordcount", {})
    reference = {"counts": [("a", 2), ("b", 1)]}
    verdict = workload.compare({"counts": wrong}, reference)
    assert (verdict.passed, verdict.checked) == (False, 2)
    assert re.search(said, verdict.message)
    assert workload.compare({"counts": [("b", 1), ("a", 2)]}, reference).passed
    assert not workload.compare({}, reference).passed

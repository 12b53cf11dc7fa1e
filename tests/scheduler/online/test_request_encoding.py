"""Encoding of requests to an online scheduler's process: in pieces, with the bytes of one JSON document."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from observed_rounds import observed, round_at

from scheduler import deciding
from scheduler.deciding import Question, question_in_pieces
from scheduler.online.observation import Change

TEXT = st.text(max_size=5)


@given(
    rates=st.dictionaries(st.tuples(TEXT, TEXT), st.floats(0, 1e9), max_size=12),
    subjects=st.lists(TEXT, max_size=9),
    most=st.integers(1, 14),
    number=st.integers(0, 1 << 40),
)
def test_pieces_are_the_document_without_its_last_brace(
    rates: dict[tuple[str, str], float], subjects: list[str], most: int, number: int
) -> None:
    changes = [Change.of(1.0, "node_up", subject) for subject in subjects]
    observation = observed(60, rates=rates, changes=changes)
    problem = round_at(observation)
    document = msgspec.json.encode(Question(number, problem, observation))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deciding, "MOST_ENTRIES", most)
        pieces = question_in_pieces(number, problem, observation)
    assert b"".join(pieces) + b"}" == document


def test_no_piece_grows_with_the_number_of_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deciding, "MOST_ENTRIES", 10)

    def longest(bolts: int) -> int:
        names = [f"b[{at:04}]" for at in range(bolts)]
        places = {name: f"n1/{at}" for at, name in enumerate(names)}
        observation = observed(60, {"s[0]": "n2/0", **places}, {("s[0]", name): 1.0 for name in names})
        return max(map(len, question_in_pieces(1, round_at(observation), observation)))

    assert longest(2000) < longest(20) + 100

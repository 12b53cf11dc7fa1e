"""Foreign text is shown on one line, bounded, without control characters."""

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from inventory.foreign import MOST, printable, printable_all, printable_lines

ANYTHING = st.text(st.characters(codec=None))


@given(ANYTHING)
def test_printable_text_has_no_control_characters(text: str) -> None:
    shown = printable(text)
    assert not [c for c in shown if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"}]
    shown.encode()  # fails for a lone surrogate


@given(ANYTHING, st.integers(0, 3000))
def test_printable_text_is_bounded_and_stays_unchanged(text: str, times: int) -> None:
    shown = printable(text * times)
    assert len(shown) <= MOST
    assert printable(shown) == shown


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=MOST))
def test_ordinary_text_is_not_changed(text: str) -> None:
    assert printable(text) == text


def test_both_ends_of_a_long_text_are_kept() -> None:
    shown = printable("who: " + "x" * 15_000_000 + "; log: logs/attempt-1")
    assert shown.startswith("who: xxx")
    assert shown.endswith("xxx; log: logs/attempt-1")
    assert len(shown) == MOST


def test_a_line_break_in_foreign_text_cannot_forge_a_line_of_output() -> None:
    lines = printable_lines("cannot be read: a\x1b[2J\rb\nrun 1/1 001-wordcount-even-r1 ok in 5 s").split("\n")
    assert lines == ["cannot be read: a\\x1b[2J\\rb", "  run 1/1 001-wordcount-even-r1 ok in 5 s"]


def test_documents_are_made_printable_with_their_keys_at_any_depth() -> None:
    assert printable_all({"a\x1b": ["\x07", 1, None, {"b": "\n"}]}) == {"a\\x1b": ["\\x07", 1, None, {"b": "\\n"}]}
    deep = json.loads("[" * 900 + "]" * 900)
    assert "[...]" in str(printable_all(deep))

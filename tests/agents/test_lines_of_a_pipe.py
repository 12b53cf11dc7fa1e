"""Lines come out whole, however a pipe cuts them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.line_reader import Lines
from inventory.errors import RunError


@given(st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\n", b"")), max_size=20), st.data())
def test_any_cut_of_a_stream_gives_the_same_lines(lines, data):
    stream = b"".join(line + b"\n" for line in lines) + b"unfinished"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    taken = Lines()
    got = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += taken.feed(stream[begin:end])
    assert got == [line for line in lines if line]


@pytest.mark.parametrize("pieces", [[b"x" * 11], [b"x" * 6, b"x" * 5], [b"ok\n" + b"x" * 11 + b"\n"]])
def test_a_line_longer_than_allowed_is_refused(pieces):
    lines = Lines(longest=10)
    *first, last = pieces
    for piece in first:
        assert lines.feed(piece) == []
    with pytest.raises(RunError, match="more than 10 bytes"):
        lines.feed(last)


def test_a_line_of_just_the_allowed_length_passes():
    assert Lines(longest=10).feed(b"x" * 10 + b"\n") == [b"x" * 10]

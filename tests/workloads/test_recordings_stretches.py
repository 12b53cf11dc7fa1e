"""Files read in stretches: every line belongs to the stretch in which it begins, for any division."""

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from workloads.recordings.raw_files import BYTE_ORDER_MARK, blocks

# Without line ends, bytes that are not text, and the first byte of gzip files.
LINES = st.lists(st.binary(max_size=6).map(lambda line: line.translate(None, b"\n\r\0\x1f")), max_size=12)


@given(
    LINES,
    st.sampled_from([b"\n", b"\r\n"]),
    st.booleans(),
    st.booleans(),
    st.lists(st.integers(4, 100), max_size=6, unique=True),
    st.integers(12, 40),
)
def test_stretches_have_together_the_lines_of_the_whole_file(
    lines: list[bytes], end: bytes, marked: bool, ended: bool, cuts: list[int], block_bytes: int
) -> None:
    content = BYTE_ORDER_MARK * marked + end.join(lines) + end * ended
    with TemporaryDirectory() as folder, patch("workloads.recordings.raw_files.BLOCK_BYTES", block_bytes):
        path = Path(folder) / "part"
        path.write_bytes(content)
        whole = b"".join(block for block, _ in blocks(path))
        bounds = [0, *sorted(cut for cut in cuts if cut < len(content)), None]
        found = [block for begin, stop in pairwise(bounds) for block, _ in blocks(path, begin or 0, stop)]
        assert b"".join(found) == whole
        assert all(block.endswith(b"\n") for block in found)

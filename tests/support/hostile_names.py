"""Hostile file names that try to escape from a folder, and a folder tree that detects it."""

from pathlib import Path

from hypothesis import strategies as st

OUTSIDE = "{outside}"
"""Placeholder in a name for a folder that must not be touched."""

_UPWARDS = ["..", ".", "/", "//", "../", "../../", "/..", "../" * 30, "link", "~", "~root", OUTSIDE, f"/{OUTSIDE}"]
_ODD = ["\\", "C:", "%2e%2e%2f", "*", "?", "[a]", "\0", "\n", "\x1b]0;x\x07", "\u202e", "\u2028", " ", "a" * 300, "-rf"]
_RIGHT = ["r", "r/answer/", "answer", "r/checkpoints/1/", "sink[0]", "traces", "profiles", "counts", "x.arrow", ".ssh"]

_PIECES = st.sampled_from(_UPWARDS) | st.sampled_from(_ODD + _RIGHT)
NAMES = st.lists(_PIECES, min_size=1, max_size=6).map("".join) | st.text(max_size=20)
"""Paths upwards, absolute paths, links, control characters, too long names, and arbitrary text."""


class SandboxFolder:
    """Folder tree in which only `inside` may be written."""

    def __init__(self, folder: Path) -> None:
        self.inside, self.outside = folder / "inside", folder / "outside"
        for made in (self.inside, self.outside):
            made.mkdir(parents=True)
        (self.outside / "canary").write_text("alive")
        self._folder = folder
        self._before = self._snapshot()

    def name(self, drawn: str) -> str:
        """Return a drawn name with the placeholder replaced."""
        return drawn.replace(OUTSIDE, str(self.outside))

    def check(self) -> None:
        """Check that nothing outside is new, missing or changed."""
        assert self._snapshot() == self._before

    def _snapshot(self) -> dict[str, tuple[int, int]]:
        parts = [self._folder, self._folder.parent, self.outside, *self.outside.rglob("*")]
        entries = [path for folder in parts if folder.is_dir() for path in folder.iterdir()]
        return {str(path): (path.lstat().st_mode, path.lstat().st_nlink if path.is_file() else 0) for path in entries}

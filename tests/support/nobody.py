"""Programs as a user who is not root, also where the tests run as root and this Python lies in a folder of root's."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOBODY = 65534

# In a mount namespace of its own, a folder that is closed to others gets an open one laid over it.
OPENED = """
mount -t tmpfs tmpfs "$1"
for closed in $2; do
  at="$1/$((n += 1))"
  mkdir -m 755 "$at" "$at/upper" "$at/work"
  mount -t overlay overlay -o "lowerdir=$closed,upperdir=$at/upper,workdir=$at/work" "$closed"
done
shift 2
exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all "$@"
"""


def _closed() -> list[Path]:
    """Folders above this Python and this checkout that others may not enter, outermost first."""
    wanted = [Path(sys.executable), Path(sys.executable).resolve(), ROOT]
    above = {folder for path in wanted for folder in path.parents}
    return sorted(folder for folder in above if not folder.stat().st_mode & 0o001)


class Nobody:
    """A user with a folder that is theirs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state, self._mounts = folder, folder / "state", folder / "mounts"
        for made in (self.state, self._mounts, folder / "tmp"):
            made.mkdir(mode=0o700)
        if os.geteuid() == 0:
            for own in (folder, self.state, folder / "tmp"):
                os.chown(own, NOBODY, NOBODY)

    def start(self, arguments: Sequence[str]) -> subprocess.Popen[str]:
        """Start a program as this user, with pipes; it leads a session of its own."""
        before = []
        if os.geteuid() == 0:
            closed = " ".join(map(str, _closed()))
            before = ["unshare", "--mount", "sh", "-ec", OPENED, "sh", str(self._mounts), closed]
        return subprocess.Popen(
            [*before, *arguments],
            cwd=self.folder,
            env={
                **os.environ,
                "HOME": str(self.folder),
                "TMPDIR": str(self.folder / "tmp"),
                "XDG_STATE_HOME": str(self.state),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def lacks(self) -> str | None:
        """Why this user has no namespaces of their own here; None when they have."""
        with self.start(["unshare", "--user", "--map-root-user", "--net", "--mount", "true"]) as child:
            _, said = child.communicate(timeout=60)
        return said.strip() or None if child.returncode else None


@contextmanager
def nobody() -> Iterator[Nobody]:
    """A user for a test, in a folder that they can reach."""
    with tempfile.TemporaryDirectory(prefix="nobody-") as name:
        yield Nobody(Path(name))

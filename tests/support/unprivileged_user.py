"""Programs run by an unprivileged user, also if the tests run as root and Python is in a folder of root's."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOBODY_UID = 65534

# In a private mount namespace, an accessible overlay covers each folder that is closed to others.
OVERLAY_SCRIPT = """
mount -t tmpfs tmpfs "$1"
for closed in $2; do
  at="$1/$((n += 1))"
  mkdir -m 755 "$at" "$at/upper" "$at/work"
  mount -t overlay overlay -o "lowerdir=$closed,upperdir=$at/upper,workdir=$at/work" "$closed"
done
shift 2
exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all "$@"
"""


def _closed_folders() -> list[Path]:
    """Return folders above this Python and this checkout that others may not enter, outermost first."""
    wanted = [Path(sys.executable), Path(sys.executable).resolve(), ROOT]
    above = {folder for path in wanted for folder in path.parents}
    return sorted(folder for folder in above if not folder.stat().st_mode & 0o001)


class UnprivilegedUser:
    """An unprivileged user with a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state, self._mounts = folder, folder / "state", folder / "mounts"
        for made in (self.state, self._mounts, folder / "tmp"):
            made.mkdir(mode=0o700)
        if os.geteuid() == 0:
            for own in (folder, self.state, folder / "tmp"):
                os.chown(own, NOBODY_UID, NOBODY_UID)

    def start(self, arguments: Sequence[str]) -> subprocess.Popen[str]:
        """Start a program as this user, with pipes, in a session of its own."""
        prefix = []
        if os.geteuid() == 0:
            closed = " ".join(map(str, _closed_folders()))
            prefix = ["unshare", "--mount", "sh", "-ec", OVERLAY_SCRIPT, "sh", str(self._mounts), closed]
        return subprocess.Popen(
            [*prefix, *arguments],
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

    def namespace_error(self) -> str | None:
        """Return why this user cannot create namespaces here, or None."""
        with self.start(["unshare", "--user", "--map-root-user", "--net", "--mount", "true"]) as child:
            _, output = child.communicate(timeout=60)
        return output.strip() or None if child.returncode else None


@contextmanager
def unprivileged_user() -> Iterator[UnprivilegedUser]:
    """Yield a user with a folder that they can access."""
    with tempfile.TemporaryDirectory(prefix="nobody-") as name:
        yield UnprivilegedUser(Path(name))

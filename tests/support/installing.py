"""Installing a third-party package for real: build its wheel, unpack it, put it on the path of a new process."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

MILLRACE = Path(sys.executable).with_name("millrace")


def install(project: Path, work: Path) -> Path:
    """Build the wheel of `project` (which must be a copy) and install it; return the folder for PYTHONPATH."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(work / "dist")],
        cwd=project,
        check=True,
        capture_output=True,
    )
    (wheel,) = (work / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(work / "site")
    return work / "site"


def millrace(
    *arguments: str | Path, path: Path | None = None, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own, with `path` on PYTHONPATH."""
    more: Sequence[tuple[str, str]] = [("PYTHONPATH", str(path))] if path is not None else []
    return subprocess.run(
        [str(MILLRACE), *map(str, arguments)],
        env={**os.environ, **dict(more), **(env or {})},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

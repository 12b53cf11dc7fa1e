"""Installation of third-party packages, as wheels on the path of a new process, and of engines."""

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from inventory.errors import UnfitError

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


def install_guide(page: str, work: Path) -> Path:
    """Install the package whose code and entry points are on the page "Add a scheduler", as `install` does."""
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    (registration,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (other,) = re.findall(r'`(unloader = ".*?")`', page)
    (module,) = re.findall(r'= "(\w+):', registration)
    project = work / "project"
    project.mkdir()
    (project / f"{module}.py").write_text(code)
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "guide"\nversion = "1"\n'
        f'{registration}{other}\n[tool.hatch.build.targets.wheel]\ninclude = ["{module}.py"]\n'
    )
    return install(project, work)


@contextmanager
def skipping_without_jars(required: bool = False) -> Iterator[None]:
    """Skip the test if the block installs an engine whose jars cannot be fetched here, unless they are required."""
    try:
        yield
    except UnfitError as error:
        if required or "Maven:" not in str(error):
            raise
        pytest.skip(f"jars cannot be fetched here: {error}")


def millrace(
    *arguments: str | Path, path: Path | None = None, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a new process, with `path` on PYTHONPATH."""
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

"""Where results come from: version, commit and host, for `campaign.json`."""

import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agents.facts import gather

ROOT = Path(__file__).parents[1]


def provenance() -> dict[str, Any]:
    """`version`, `git_commit` and `git_dirty`, `host` and `started_utc` of what runs now."""
    commit, dirty = git_state(ROOT)
    return {
        "version": version("millrace"),
        "git_commit": commit,
        "git_dirty": dirty,
        "host": {**gather(), "python": platform.python_version()},
        "started_utc": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    }


def git_state(root: Path) -> tuple[str | None, bool | None]:
    """The commit of the checkout at `root`, and whether its tracked files were changed since.

    Both are None where `root` is no checkout of its own: it may be installed inside another project's.
    """
    if not (root / ".git").exists():
        return None, None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        return commit, bool(_git(root, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return None, None


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=True, timeout=10, text=True)
    return done.stdout.strip()

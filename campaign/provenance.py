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
    """`version`, `git_commit` (null outside a checkout), `host` and `started_utc` of what runs now."""
    return {
        "version": version("millrace"),
        "git_commit": git_commit(),
        "host": {**gather(), "python": platform.python_version()},
        "started_utc": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    }


def git_commit() -> str | None:
    """The commit of the checkout that this code runs from, with `-dirty` when tracked files were changed."""
    if not (ROOT / ".git").exists():
        return None  # installed somewhere, maybe inside another project's checkout
    try:
        commit = _git("rev-parse", "HEAD")
        return f"{commit}-dirty" if _git("status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=True, timeout=10, text=True)
    return done.stdout.strip()

"""The provenance of results is exact or missing."""

import subprocess
from pathlib import Path

from campaign.runner.open_campaign import git_state, provenance


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_provenance_has_the_commit_and_changes_of_a_checkout(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-q", "-m", "one")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert git_state(tmp_path) == (commit, False)
    (tmp_path / "untracked").write_text("results")
    assert git_state(tmp_path) == (commit, False)
    (tmp_path / "file").write_text("two")
    assert git_state(tmp_path) == (commit, True)


def test_the_checkout_of_another_project_is_not_provenance(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "venv").mkdir()
    assert git_state(tmp_path / "venv") == (None, None)


def test_provenance_has_version_host_and_start() -> None:
    found = provenance()
    assert found.version
    assert found.host["python"]
    assert found.started_utc.endswith("Z")

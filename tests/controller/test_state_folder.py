"""Folder of state files and locks: the same for every session and boot, and private to its user."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from unprivileged_user import UnprivilegedUser, unprivileged_user

from campaign.runner.clean import clean
from controller.host.cluster_lock import ClusterClaim, ClusterLock, lock_path
from controller.host.disk import find_state_folder, state_folder
from controller.host.ownership import CleanupLog, read_state
from controller.host.process_identity import boot_id
from inventory.errors import UnfitError

HOLDER = """
import sys, time
from pathlib import Path
from controller.host.cluster_lock import ClusterClaim, ClusterLock
from controller.host.ownership import CleanupLog

with ClusterLock(ClusterClaim("five nodes", ("five",)), Path("first")), CleanupLog(Path("first")) as state:
    state.partial(Path("first/001")).mkdir(parents=True)
    print("held", flush=True)
    time.sleep(600)
"""

SECOND = """
from pathlib import Path
from controller.host.cluster_lock import ClusterClaim, ClusterLock
from inventory.errors import UnfitError

try:
    with ClusterLock(ClusterClaim("five nodes", ("five",)), Path("second")):
        print("taken")
except UnfitError as refusal:
    print(refusal)
"""

CLEAN = "from millrace.__main__ import main; main()"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def user() -> Iterator[UnprivilegedUser]:
    with unprivileged_user() as new_user:
        yield new_user


def program(user: UnprivilegedUser, code: str, *arguments: str, **changes: str | None) -> subprocess.Popen[str]:
    """Start a program as a user without XDG variables, except for these changes."""
    variables: Mapping[str, str | None] = {"XDG_STATE_HOME": None, "XDG_RUNTIME_DIR": None, **changes}
    assignments = [f"{name}={value}" for name, value in variables.items() if value is not None]
    return user.start(
        ["env", *(f"-u{name}" for name in variables), *assignments, sys.executable, "-P", "-c", code, *arguments]
    )


def output_of(user: UnprivilegedUser, code: str, *arguments: str, **changes: str | None) -> tuple[str, str]:
    with program(user, code, *arguments, **changes) as child:
        return child.communicate(timeout=60)


def test_a_second_campaign_is_refused_and_clean_finds_the_first_after_a_logout(user: UnprivilegedUser) -> None:
    session = user.folder / "session"
    session.mkdir()
    with program(user, HOLDER, XDG_RUNTIME_DIR=str(session)) as first:
        try:
            assert first.stdout is not None
            assert first.stdout.readline() == "held\n"
            session.rmdir()
            refused, _ = output_of(user, SECOND)
            # In a mount namespace, the started process is the program itself.
            assert f"in use by pid {first.pid} of nobody, campaign {user.folder}/first, since 2" in refused
            out, err = output_of(user, CLEAN, "clean")
            assert out == "nothing was left behind\n"
            assert f"left alone: pid {first.pid} " in err
        finally:
            first.kill()
            first.wait()
    removed, _ = output_of(user, CLEAN, "clean", XDG_RUNTIME_DIR=str(user.folder / "session of the next login"))
    assert f"removed: folder {user.folder}/first/001.partial" in removed
    assert not (user.folder / "first" / "001.partial").exists()
    [folder] = (user.folder / ".local/state/millrace").iterdir()
    assert folder.name == find_state_folder().name
    assert folder.stat().st_mode & 0o777 == 0o700
    assert list(folder.iterdir()) == []


def test_a_home_that_cannot_be_written_is_an_error_which_names_the_remedy(user: UnprivilegedUser) -> None:
    _, err = output_of(user, CLEAN, "clean", HOME="/proc/none")
    assert err.startswith("millrace: /proc/none/.local/state/millrace/")
    assert "cannot be made: " in err
    assert err.endswith("set XDG_STATE_HOME to a folder of yours on this machine\n")
    out, err = output_of(user, CLEAN, "clean", HOME="/proc/none", XDG_STATE_HOME=str(user.folder / "elsewhere"))
    assert (out, err) == ("nothing was left behind\n", "")
    assert [path.name for path in (user.folder / "elsewhere").iterdir()] == ["millrace"]


@pytest.mark.root
def test_the_folder_of_root_is_below_var_lib_unless_a_folder_of_root_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME")
    assert find_state_folder().parent == Path("/var/lib/millrace")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "new" / "state"))
    assert find_state_folder().parent == tmp_path / "new" / "state" / "millrace"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert find_state_folder().parent == Path("/var/lib/millrace")
    # The home of another user, as after `su`.
    os.chown(tmp_path, 12345, -1)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert find_state_folder().parent == Path("/var/lib/millrace")


def _with_wrong_mode(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)


def _below_a_folder_for_all(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True)
    folder.parent.chmod(0o777)


def _a_link(folder: Path) -> None:
    folder.parent.mkdir(parents=True)
    folder.symlink_to(folder.parent)


def _a_file(folder: Path) -> None:
    folder.parent.mkdir(parents=True)
    folder.touch()


@pytest.mark.parametrize("spoil", [_with_wrong_mode, _below_a_folder_for_all, _a_link, _a_file])
def test_a_folder_that_others_could_write_to_is_refused(home: Path, spoil: Callable[[Path], None]) -> None:
    spoil(home / "millrace" / find_state_folder().name)
    with pytest.raises(
        UnfitError, match=r"millrace.*: (must be a folder of|the folder .* cannot be made: File exists)"
    ):
        state_folder()


@pytest.mark.usefixtures("home")
def test_a_lock_of_another_boot_is_free_although_a_file_server_keeps_it(tmp_path: Path) -> None:
    with ClusterLock(ClusterClaim("five nodes", ("five",)), tmp_path) as lock:
        text = lock.path.read_text()
    assert f'"boot":"{boot_id()}"' in text
    path = lock_path(ClusterClaim("five nodes", ("five",)))
    for boot, refused in ((boot_id(), True), ("0" * len(boot_id()), False)):
        path.write_text(text.replace(boot_id(), boot))
        with path.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            if refused:
                with (
                    pytest.raises(UnfitError, match="is in use by"),
                    ClusterLock(ClusterClaim("five nodes", ("five",)), tmp_path),
                ):
                    pass
            else:
                with ClusterLock(ClusterClaim("five nodes", ("five",)), tmp_path):
                    assert f'"boot":"{boot_id()}"' in path.read_text()


@pytest.mark.usefixtures("home")
def test_groups_and_namespaces_in_a_record_of_another_boot_are_not_removed(tmp_path: Path) -> None:
    group = tmp_path / "a control group of today"
    with CleanupLog(tmp_path) as state:
        state.group(group)
        state.namespace("mrtoday")
        text = state.path.read_text()
    group.mkdir()
    state.path.write_text(text.replace(boot_id(), "0" * len(boot_id())))
    record = read_state(state.path)
    assert record is not None
    assert record.left() == []
    outcome = clean()
    assert outcome.failed == []
    assert [line.partition(" (")[0] for line in outcome.done] == [f"state file {state.path}"]
    assert group.is_dir()


@pytest.mark.usefixtures("home")
def test_files_that_belong_to_a_state_file_are_removed_with_it(tmp_path: Path) -> None:
    with CleanupLog(tmp_path) as state:
        state.path.with_suffix(".relay.log").write_text("something to say")
    assert list(state_folder().iterdir()) == []

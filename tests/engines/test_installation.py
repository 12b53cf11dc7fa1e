"""Installation of engines with a Maven that works, fails, delivers other bytes or is missing; no partial folders."""

import errno
import hashlib
import os
import sys
import tomllib
from pathlib import Path

import pytest

from engines import installation
from engines.installation import Engine, install
from inventory.errors import InputError, UnfitError

BYTES = b"classes"

MAVEN = """#!{python}
import pathlib, sys
target = pathlib.Path(next(a for a in sys.argv if a.startswith("-DoutputDirectory=")).partition("=")[2])
target.mkdir()
(target / "one-1.0.jar").write_bytes({first!r})
if {fails!r}:
    print("[ERROR] Could not transfer artifact a:two:jar:2.0: Premature end of body -> [Help 1]")
    sys.exit(1)
(target / "two-2.0.jar").write_bytes(b"classes")
"""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    file = tmp_path / "jars.toml"
    digest = hashlib.sha512(BYTES).hexdigest()
    file.write_text(f'[toy]\n"a:one:1.0" = "{digest}"\n"a:two:2.0" = "{digest}"\n')
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "engines"


def provide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bytes = BYTES, fails: bool = False) -> None:
    """Put a Maven and a compiler for it first on the path."""
    programs = tmp_path / "programs"
    programs.mkdir(exist_ok=True)
    for name in ("mvn", "javac"):
        program = programs / name
        program.write_text(MAVEN.format(python=sys.executable, first=first, fails=fails))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))


def installed(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name != ".lock"] if folder.exists() else []


def test_an_engine_is_installed_once(tmp_path: Path, folder: Path, lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provide(tmp_path, monkeypatch)
    messages: list[str] = []
    engine = install("toy", messages.append, folder, lock)
    assert [Path(jar).name for jar in engine.class_path.split(":")] == ["one-1.0.jar", "two-2.0.jar"]
    assert messages[-1] == f"toy: 2 jars in {engine.folder}"
    provide(tmp_path, monkeypatch, fails=True)
    assert install("toy", messages.append, folder, lock) == Engine("toy", engine.folder)


def test_a_download_that_is_cut_off_leaves_nothing_and_the_next_one_completes(
    tmp_path: Path, folder: Path, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provide(tmp_path, monkeypatch, fails=True)
    with pytest.raises(
        UnfitError, match=r"toy was not installed: Maven: Could not transfer .*: Premature end of body$"
    ):
        install("toy", print, folder, lock)
    assert installed(folder) == []
    (folder / ".toy-killed").mkdir()  # as kill -9 leaves it
    provide(tmp_path, monkeypatch)
    engine = install("toy", print, folder, lock)
    assert installed(folder) == [engine.folder.name]


def test_a_jar_with_another_checksum_is_refused(
    tmp_path: Path, folder: Path, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provide(tmp_path, monkeypatch, first=b"other classes")
    with pytest.raises(
        UnfitError, match=r"nothing was installed: the SHA-512 of a:one:1\.0 is \w+\.\.\., \w+\.\.\. is"
    ):
        install("toy", print, folder, lock)
    assert installed(folder) == []


@pytest.mark.parametrize("change", ["altered", "missing", "added"])
def test_an_installed_engine_is_checked_at_every_start_and_mended_by_another_installation(
    change: str, tmp_path: Path, folder: Path, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provide(tmp_path, monkeypatch)
    engine = install("toy", print, folder, lock)
    assert installation.installed("toy", folder, lock) == engine
    jar = engine.folder / ("three-3.0.jar" if change == "added" else "two-2.0.jar")
    if change == "missing":
        jar.unlink()
    else:
        jar.write_bytes(b"classes of somebody else")
    with pytest.raises(UnfitError, match=rf"{engine.folder} is not as it was installed: .*(a:two:2.0|three-3.0.jar)"):
        installation.installed("toy", folder, lock)
    assert install("toy", print, folder, lock) == installation.installed("toy", folder, lock)


def test_a_full_disk_is_one_message(tmp_path: Path, folder: Path, lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provide(tmp_path, monkeypatch)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))

    monkeypatch.setattr(installation, "complete_folder", full)
    with pytest.raises(UnfitError, match=r"^the disk of .* is full$"):
        install("toy", print, folder, lock)
    assert installed(folder) == []


def test_a_missing_program_is_named_with_its_package(
    folder: Path, lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnfitError, match=r"toy cannot be installed: the program mvn is missing .*apt install maven"):
        install("toy", print, folder, lock)
    assert not folder.exists()


def test_an_unknown_engine_is_refused_with_the_nearest(folder: Path, lock: Path) -> None:
    with pytest.raises(InputError, match=r"no engine is called 'toys'.*toy"):
        install("toys", print, folder, lock)


@pytest.mark.parametrize("name", ["jars.toml", "test_jars.toml"])
def test_every_locked_jar_has_coordinates_and_a_checksum(name: str) -> None:
    locked = tomllib.loads(installation.LOCK.with_name(name).read_text())
    assert locked
    for jars in locked.values():
        assert jars
        assert all(len(jar.split(":")) == 3 and len(bytes.fromhex(jars[jar])) == 64 for jar in jars)

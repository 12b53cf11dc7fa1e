"""Installation of a stream engine: its jars, by this machine's Maven, each checked against a locked SHA-512.

`jars.toml` has the versions and checksums. Maven's own repository on this machine keeps what has been fetched, so that
an interrupted installation continues where it stopped. A folder appears only when all of its jars are there and right.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from controller.host.disk import converting_full_disk
from inventory.atomic_files import complete_folder
from inventory.errors import InputError, UnfitError, nearest

LOCK = Path(__file__).with_name("jars.toml")

FOLDER = Path(sys.prefix) / "millrace-engines"
"""Folder of installed engines, in the Python environment that uses them."""

COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
"""Maven's goal, with its version: what it does must not change with the machine's Maven."""

_LIMIT_S = 1800.0

_POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>millrace</groupId><artifactId>engine</artifactId><version>1</version>
<packaging>pom</packaging><dependencies>{}</dependencies></project>
"""

_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>\n"
)

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Engine:
    """An installed engine.

    Attributes:
        name: its name in `jars.toml`.
        folder: folder with its jars.
    """

    name: str
    folder: Path

    @property
    def class_path(self) -> str:
        """Return Java's class path of all jars."""
        return ":".join(str(jar) for jar in sorted(self.folder.glob("*.jar")))


def engines_unsupported_reason() -> str | None:
    """Return why engines cannot be installed on this machine, or None."""
    for program, package in (("mvn", "maven"), ("javac", "openjdk-17-jdk-headless")):
        if shutil.which(program) is None:
            return f"the program {program} is missing (Debian, Ubuntu: apt install {package})"
    return None


def engine_names(lock: Path = LOCK) -> list[str]:
    """Return the engines that can be installed."""
    return sorted(tomllib.loads(lock.read_text(encoding="utf-8")))


def installed(name: str, folder: Path = FOLDER, lock: Path = LOCK) -> Engine | None:
    """Return an engine if it is installed in the version of the lock file; all its jars are read and checked.

    Raises:
        InputError: there is no such engine.
        UnfitError: its jars have changed since.
    """
    jars = _jars(name, lock)
    engine = Engine(name, _final(name, jars, folder))
    if not engine.folder.is_dir():
        return None
    if fault := _fault(jars, engine.folder):
        raise UnfitError(
            f"{engine.folder} is not as it was installed: {fault}; millrace engine {name} installs it again"
        )
    return engine


def install(name: str, report: Progress, folder: Path = FOLDER, lock: Path = LOCK) -> Engine:
    """Install an engine and return it; one that is installed already is checked, and replaced if it has changed.

    Args:
        name: an engine of the lock file.
        report: called with a line about what happens.
        folder: folder of all engines.
        lock: file with coordinates and checksums.

    Raises:
        InputError: there is no such engine.
        UnfitError: a program is missing, Maven failed, a jar has another checksum, or the disk is full.
    """
    jars = _jars(name, lock)
    final = _final(name, jars, folder)
    if final.is_dir() and not _fault(jars, final):
        return Engine(name, final)
    reason = engines_unsupported_reason()
    if reason is not None:
        raise UnfitError(f"{name} cannot be installed: {reason}")
    with converting_full_disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            if not final.is_dir() or _fault(jars, final):
                shutil.rmtree(final, ignore_errors=True)
                for killed in folder.glob(f".{name}-*"):
                    shutil.rmtree(killed)
                with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder) as staging:
                    jar_folder = Path(staging) / "jars"
                    _fetch(name, jars, Path(staging), jar_folder, report)
                    if fault := _fault(jars, jar_folder):
                        raise UnfitError(f"nothing was installed: {fault}")
                    complete_folder(jar_folder, final)
    report(f"{name}: {len(jars)} jars in {final}")
    return Engine(name, final)


def _jars(name: str, lock: Path) -> Mapping[str, str]:
    locks: Mapping[str, Mapping[str, str]] = tomllib.loads(lock.read_text(encoding="utf-8"))
    if name not in locks:
        raise InputError(f"no engine is called {name!r}{nearest(name, locks)}")
    return locks[name]


def _final(name: str, jars: Mapping[str, str], folder: Path) -> Path:
    listed = "\n".join(f"{jar} {jars[jar]}" for jar in sorted(jars))
    return folder / f"{name}-{hashlib.sha256(listed.encode()).hexdigest()[:12]}"


def _fetch(name: str, jars: Mapping[str, str], staging: Path, target: Path, report: Progress) -> None:
    """Copy the jars to `target`, by Maven; report each one that is fetched.

    Raises:
        UnfitError: Maven fails; the message has Maven's first error.
    """
    pom = staging / "pom.xml"
    pom.write_text(_POM.format("".join(_DEPENDENCY.format(*jar.split(":")) for jar in jars)), encoding="utf-8")
    command = ["mvn", "--batch-mode", "--file", str(pom), COPY, f"-DoutputDirectory={target}"]
    report(f"{name}: fetching {len(jars)} jars by Maven")
    errors: list[str] = []
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as maven:
        assert maven.stdout is not None  # noqa: S101 # a pipe was asked for
        try:
            for line in maven.stdout:
                if line.startswith("[ERROR]"):
                    errors.append(line.removeprefix("[ERROR]").strip())
                elif line.startswith("Downloaded from") and ".jar " in line:
                    report(f"{name}: {line.split('/')[-1].strip()}")
            maven.wait(_LIMIT_S)
        except BaseException:
            maven.kill()
            raise
    if maven.returncode != 0:
        first = errors[0] if errors else f"exit status {maven.returncode}"
        raise UnfitError(f"{name} was not installed: Maven: {first.partition(' -> ')[0]}")


def _fault(jars: Mapping[str, str], folder: Path) -> str:
    """Return how the jars of a folder differ from the locked ones; empty if they do not."""
    others = {path.name for path in folder.glob("*.jar")}
    for coordinates, wanted in jars.items():
        _, artifact, version = coordinates.split(":")
        jar = folder / f"{artifact}-{version}.jar"
        if not jar.is_file():
            return f"there is no {coordinates}"
        others.discard(jar.name)
        with jar.open("rb") as file:
            sha512 = hashlib.file_digest(file, "sha512").hexdigest()
        if sha512 != wanted:
            return f"the SHA-512 of {coordinates} is {sha512[:16]}..., {wanted[:16]}... is locked"
    return f"{min(others)} is not locked" if others else ""

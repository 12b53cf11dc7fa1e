"""Our Java, compiled for an installed engine: `engines/java/millrace` and the folder there with the engine's name."""

import fcntl
import hashlib
import subprocess
import tempfile
import zipfile
from pathlib import Path

from controller.host.disk import converting_full_disk
from engines.installation import Engine, Progress, engines_unsupported_reason
from inventory.atomic_files import replacing_path
from inventory.errors import UnfitError

SOURCES = Path(__file__).with_name("java")

RELEASE = "17"
"""Version of Java for which classes are compiled."""

_LIMIT_S = 300.0


def sources_for(name: str) -> list[Path]:
    """Return the source files of an engine: those of all engines, and its own adapter."""
    common = SOURCES / "millrace"
    return sorted([*common.glob("*.java"), *(common / name.partition("-")[0]).glob("*.java")])


def engine_jar(engine: Engine, report: Progress) -> Path:
    """Return the jar of our classes for an engine, which is made if the sources have changed.

    Args:
        engine: the installed engine.
        report: called with a line about what happens.

    Raises:
        UnfitError: there is no compiler, it fails, or the disk is full.
    """
    sources = sources_for(engine.name)
    digest = hashlib.sha256(f"{engine.folder.name} {RELEASE}".encode())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    jar = engine.folder.parent / f"{engine.name}-programs-{digest.hexdigest()[:12]}.jar"
    if jar.is_file():
        return jar
    reason = engines_unsupported_reason()
    if reason is not None:
        raise UnfitError(f"our programs for {engine.name} cannot be compiled: {reason}")
    with converting_full_disk(jar.parent), (jar.parent / ".lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not jar.is_file():
            report(f"{engine.name}: compiling {len(sources)} files")
            with tempfile.TemporaryDirectory(prefix=f".{engine.name}-", dir=jar.parent) as staging:
                _compile(engine, sources, Path(staging))
                with replacing_path(jar) as partial, zipfile.ZipFile(partial, "w") as archive:
                    for path in sorted(Path(staging).rglob("*.class")):
                        archive.write(path, path.relative_to(staging))
            for old in jar.parent.glob(f"{engine.name}-programs-*.jar"):
                if old != jar:
                    old.unlink()
    return jar


def _compile(engine: Engine, sources: list[Path], target: Path) -> None:
    command = ["javac", "-nowarn", "-proc:none", "--release", RELEASE, "-cp", engine.class_path, "-d", str(target)]
    try:
        done = subprocess.run(
            [*command, *map(str, sources)], capture_output=True, text=True, check=False, timeout=_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        raise UnfitError(f"our programs for {engine.name} were not compiled within {_LIMIT_S:g} s") from None
    if done.returncode != 0:
        first = (done.stderr or done.stdout).partition("\n")[0]
        raise UnfitError(f"our programs for {engine.name} cannot be compiled: {first}")


def operation_ns(programs: Path) -> float:
    """Return the CPU time of one operation of `millrace.Work` on this machine, in nanoseconds.

    Raises:
        UnfitError: it cannot be measured.
    """
    command = ["java", "-XX:+UseSerialGC", "-cp", str(programs), "millrace.Work"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_LIMIT_S)
        return float(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as fault:
        raise UnfitError(f"the CPU time of an operation cannot be measured: {fault}") from None

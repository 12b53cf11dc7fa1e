"""Sail, an engine of the report's job that needs no Java: a server of Spark Connect inside the job's own process.

Sail refuses all versions of pyspark but those that it was made for. Its packages are therefore in a folder of their
own, which comes before the other packages of the environment in the job: there, `pyspark-client` takes the place of
`pyspark`, whose modules have the same names.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from inventory.errors import UnfitError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(sys.prefix) / "millrace-sail"
"""Folder of Sail's packages, within the environment that it belongs to."""

MISSING = (
    "Sail is not installed: .venv/bin/uv pip install --target {folder} --no-deps --require-hashes "
    "-r requirements/sail.txt, in the checkout"
)


def sail_environment(folder: Path | None = None) -> dict[str, str]:
    """Return the environment of a process that uses Sail.

    Args:
        folder: folder of Sail's packages (default `FOLDER`).

    Raises:
        UnfitError: Sail is not installed.
    """
    folder = folder or FOLDER
    if not all((folder / package / "__init__.py").is_file() for package in ("pysail", "pyspark", "grpc")):
        raise UnfitError(MISSING.format(folder=folder))
    inherited = [path for path in (os.environ.get("PYTHONPATH"),) if path]
    # Sail warns of hints that it ignores, and pyspark otherwise looks for its own Spark.
    without = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "SPARK_REMOTE")}
    return {"RUST_LOG": "error", **without, "PYTHONPATH": os.pathsep.join([str(folder), *inherited])}


@contextmanager
def sail_session() -> "Iterator[SparkSession]":
    """Start Sail on a free port of this host for the block, and stop it afterwards."""
    # Other processes than the job find neither, or Spark's own package.
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    try:
        host, port = server.listening_address
        spark = SparkSession.builder.remote(f"sc://{host}:{port}").getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()
    finally:
        server.stop()


@contextmanager
def plain_paths(folders: Sequence[Path]) -> Iterator[Callable[[Path], str]]:
    """Yield a function from a file within one of the folders to a path that Sail can read.

    Sail takes paths for patterns of URLs, and knows no way to escape brackets. Links have names without any.
    """
    with TemporaryDirectory(prefix="millrace-") as place:
        links: Mapping[Path, Path] = {each.resolve(): Path(place) / str(at) for at, each in enumerate(folders)}
        for target, link in links.items():
            link.symlink_to(target)

        def plain(file: Path) -> str:
            path = file.resolve()
            return str(links[path.parent] / path.name)

        yield plain

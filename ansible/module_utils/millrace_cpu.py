"""The program `agents.cpu`, run from the archive that came with a module's arguments."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

OLDEST_PYTHON = (3, 11)

WISH = {
    "cores": {"type": "int"},
    "smt": {"type": "bool"},
    "governor": {"type": "str"},
    "min_ghz": {"type": "float"},
    "max_ghz": {"type": "float"},
    "turbo": {"type": "bool"},
    "epp": {"type": "str"},
    "driver_mode": {"type": "str"},
}
"""What can be asked of CPUs, as an argument of a module; None leaves a setting as it is."""


SECTION = "cpu"
"""Of `pre_state.json`."""


def found_before(kept):
    """How the CPUs were found, files included that showed up only later; None where nothing has been set."""
    section = kept.section(SECTION)
    return (section.get("applied") or section["before"]) if section else None


class CpuError(Exception):
    """The program was not understood, or failed; the message is its own."""


class CpuProgram:
    """The program, with which a host's CPUs are read and set.

    Args:
        archive: as the lookup `millrace_archive` gives it.
        folder: where it may lie while the module runs.
        root: stands for `/` of the host.
    """

    def __init__(self, archive, folder, root="/"):
        if sys.version_info < OLDEST_PYTHON:
            raise CpuError(
                "Python is {}; possible: {} or newer, named by ansible_python_interpreter".format(
                    ".".join(map(str, sys.version_info[:2])), ".".join(map(str, OLDEST_PYTHON))
                )
            )
        self._path = Path(folder) / "agents-cpu.zip"
        self._path.write_bytes(base64.b64decode(archive))
        self._root = root

    def ask(self, verb, **request):
        """The answer to one request.

        Raises:
            CpuError: the request is wrong, or the program broke.
        """
        done = subprocess.run(
            [sys.executable, "-P", "-m", "agents.cpu", verb],
            input=json.dumps({"root": self._root, **request}),
            env={**os.environ, "PYTHONPATH": str(self._path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            raise CpuError(f"agents.cpu {verb}: {done.stderr.strip()[-1000:]}") from None
        if "error" in answer:
            raise CpuError(answer["error"])
        return answer

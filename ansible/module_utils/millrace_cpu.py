"""Requested settings of a host, and the program `agents.cpu`, run from the archive in a module's arguments."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

OLDEST_PYTHON = (3, 11)

REQUESTED_CPU = {
    "cores": {"type": "int"},
    "smt": {"type": "bool"},
    "governor": {"type": "str"},
    "min_ghz": {"type": "float"},
    "max_ghz": {"type": "float"},
    "turbo": {"type": "bool"},
    "epp": {"type": "str"},
    "driver_mode": {"type": "str"},
}
"""CPU settings as an argument of a module; None leaves a setting unchanged."""

REQUESTED = {
    "folder": {"type": "path", "required": True},
    "archive": {"type": "str", "required": True},
    "user": {"type": "str", "required": True},
    "service_manager": {"type": "str", "required": True},
    "is_machine": {"type": "bool", "default": True},
    "cpu": {"type": "dict", "default": {}, "options": REQUESTED_CPU},
    "cpu_share": {"type": "float"},
    "memory_mb": {"type": "int"},
}
"""Arguments of a module that checks a host's requested settings without links.

The limits and links of a host that is not a machine are set from the outside.
"""

SECTION = "cpu"
"""Section of `pre_state.json`."""


def found_before(kept):
    """Return the original CPU settings, including files that appeared later; None when nothing was changed."""
    section = kept.section(SECTION)
    return (section.get("applied") or section["before"]) if section else None


class CpuError(Exception):
    """Raised when the program fails, with its message."""


class CpuProgram:
    """The program that reads and sets a host's CPUs.

    Args:
        archive: output of the lookup `millrace_archive`.
        folder: temporary folder of the module.
        root: replaces `/` of the host.
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
        """Run one request and return the response.

        Raises:
            CpuError: the request is invalid, or the program failed.
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

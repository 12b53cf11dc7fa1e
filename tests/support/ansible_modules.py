"""Run the project's Ansible modules as Ansible does: in a process, with arguments and result as JSON."""

import importlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

ANSIBLE = Path(__file__).parents[2] / "ansible"

_START = """
import runpy, sys
import ansible.module_utils
from ansible.module_utils import basic
ansible.module_utils.__path__.append(sys.argv[1])
basic._ANSIBLE_ARGS, basic._ANSIBLE_PROFILE = sys.stdin.buffer.read(), "legacy"
runpy.run_path(sys.argv[2], run_name="__main__")
"""


def run_module(
    name: str, arguments: Mapping[str, Any], check: bool = False, inside: Sequence[str] = (), path: str | None = None
) -> dict[str, Any]:
    """Return a module's result.

    Args:
        name: name of the module.
        arguments: its arguments.
        check: run it in Ansible's check mode.
        inside: command that starts it, for example in a namespace.
        path: PATH of the process; None keeps that of the test.
    """
    (file,) = [*ANSIBLE.glob(f"library/{name}.py"), *ANSIBLE.glob(f"roles/*/library/{name}.py")]
    options = {"_ansible_check_mode": check, "_ansible_diff": True, "_ansible_remote_tmp": "/tmp"}  # noqa: S108
    done = subprocess.run(
        [*inside, sys.executable, "-c", _START, str(ANSIBLE / "module_utils"), str(file)],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": {**arguments, **options}}),
        env=None if path is None else {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def module_utils(name: str) -> ModuleType:
    """Import shared code of the modules, as they import it."""
    import ansible.module_utils

    folder = str(ANSIBLE / "module_utils")
    if folder not in ansible.module_utils.__path__:
        ansible.module_utils.__path__.append(folder)
    return importlib.import_module(f"ansible.module_utils.{name}")


def plugin(kind: str, name: str) -> ModuleType:
    """Import a plug-in by its kind (`action_plugins`, `lookup_plugins`) and name."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(f"ansible_{kind}_{name}", ANSIBLE / kind / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

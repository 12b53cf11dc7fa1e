"""Ansible module, for the controller: everything that nodes install, in one archive for each kind of node."""

import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: millrace_wheels
short_description: Everything that nodes install, in one archive for each kind of node
description:
  - Millrace itself is built from the checkout; the packages are those of C(requirements/node.txt), with their hashes.
  - An archive is named after its content, kept, and not made again. Only its making needs a package index.
options:
  checkout: {description: Folder of Millrace., type: path, required: true}
  cache: {description: Folder of the archives., type: path, required: true}
  targets: {description: Kinds of nodes., type: list, elements: str, required: true}
author: [The Millrace authors]
"""

EXAMPLES = r"""
- name: Build what nodes install
  millrace_wheels:
    checkout: "{{ playbook_dir }}/.."
    cache: /var/cache/millrace
    targets: [3.11-x86_64-glibc2.36]
  delegate_to: localhost
"""

RETURN = r"""
archives:
  description: "Target -> C(path) of its archive and C(digest) of its content. Check mode makes none."
  type: dict
  returned: always
"""

LOCK = "requirements/node.txt"
PACKAGES = (
    "agents",
    "analysis",
    "campaign",
    "controller",
    "engines",
    "inventory",
    "millrace",
    "scheduler",
    "workloads",
)
NOT_PACKED = {"__pycache__", "facts"}
LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
OLDEST_GLIBC = 5
KEPT = 4
"""Number of archives kept; each has about 60 MB."""


def digest_of(checkout, target):
    """Return a name that identifies the contents of an archive."""
    seen = hashlib.sha256(target.encode())
    files = [checkout / LOCK, checkout / "pyproject.toml"]
    for package in PACKAGES:
        inside = (file for file in (checkout / package).rglob("*") if file.is_file())
        files += sorted(file for file in inside if not NOT_PACKED & set(file.relative_to(checkout).parts))
    for file in files:
        seen.update(f"\0{file.relative_to(checkout)}\0".encode())
        seen.update(hashlib.sha256(file.read_bytes()).digest())
    return seen.hexdigest()[:16]


def platforms(machine, glibc):
    """Return pip's names of the platforms whose wheels run on a target."""
    found = []
    for minor in range(glibc, OLDEST_GLIBC - 1, -1):
        found += [f"manylinux_2_{minor}_{machine}", *([f"{LEGACY[minor]}_{machine}"] if minor in LEGACY else [])]
    return found


def fill(folder, checkout, target):
    """Put all wheels of a target into a folder."""
    python, machine, glibc = re.fullmatch(r"([\d.]+)-(\w+)-glibc2\.(\d+)", target).groups()
    runs = [sys.executable, "-m"]
    tell = {"capture_output": True, "text": True, "check": True, "cwd": checkout}
    subprocess.run([*runs, "hatchling", "build", "-t", "wheel", "-d", str(folder)], **tell)
    fits = [part for platform in platforms(machine, int(glibc)) for part in ("--platform", platform)]
    get = ["download", "--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps"]
    kind = ["--only-binary", ":all:", "--implementation", "cp", "--python-version", python, *fits]
    subprocess.run([*runs, "pip", *get, *kind, "--dest", str(folder), "-r", LOCK], **tell)


def own_pip():
    """Return this environment's pip as a zip archive that Python can run: nodes need no pip of their own."""
    import pip

    root = Path(pip.__file__).parent
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(root.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, Path("pip") / file.relative_to(root))
    return packed.getvalue()


def make(path, checkout, target):
    """Create an archive atomically."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=str(path.parent)) as folder:
        wheels = Path(folder) / "wheels"
        wheels.mkdir()
        fill(wheels, checkout, target)
        (wheels / "pip.zip").write_bytes(own_pip())
        partial = Path(folder) / "archive.tar"
        with tarfile.open(partial, "w") as archive:
            for file in sorted(wheels.iterdir()):
                archive.add(file, file.name)
        partial.chmod(0o644)
        partial.replace(path)


def prune(cache, in_use):
    """Remove all archives but the newest."""
    archives = sorted(cache.glob("wheels-*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in archives[KEPT:]:
        if str(path) not in in_use:
            path.unlink()


def main():
    """Run as Ansible runs modules."""
    module = AnsibleModule(
        argument_spec={
            "checkout": {"type": "path", "required": True},
            "cache": {"type": "path", "required": True},
            "targets": {"type": "list", "elements": "str", "required": True},
        },
        supports_check_mode=True,
    )
    checkout, cache = Path(os.path.realpath(module.params["checkout"])), Path(module.params["cache"])
    archives, changed = {}, False
    for target in module.params["targets"]:
        digest = digest_of(checkout, target)
        path = cache / f"wheels-{digest}.tar"
        if not path.is_file():
            changed = True
            if not module.check_mode:
                try:
                    make(path, checkout, target)
                except subprocess.CalledProcessError as fault:
                    module.fail_json(msg=f"{' '.join(fault.cmd[2:5])} for {target}: {fault.stderr.strip()}")
                except OSError as fault:
                    module.fail_json(msg=f"{fault.filename or path}: {fault.strerror}")
        archives[target] = {"path": str(path), "digest": digest}
    if changed and not module.check_mode:
        prune(cache, {archive["path"] for archive in archives.values()})
    module.exit_json(changed=changed, archives=archives)


if __name__ == "__main__":
    main()

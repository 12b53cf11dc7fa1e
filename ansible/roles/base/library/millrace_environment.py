"""Ansible module: the Python environment of the agents on a node, installed from an archive without an index."""

import shutil
import subprocess
import tarfile
from contextlib import suppress
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.millrace_installed import DONE, LINK, PREFIX, installed

DOCUMENTATION = r"""
module: millrace_environment
short_description: The Python environment of the agents on a node, installed from an archive without an index
description:
  - The environment lies in C(venv-DIGEST) of O(home), and C(venv) is a link to it, which is set when all is in place.
    What an interrupted installation left is removed.
options:
  home: {description: Folder of the environment., type: path, required: true}
  python: {description: The Python that it is made with., type: str}
  digest: {description: Name of the archive's content., type: str}
  archive:
    description: The archive on this host. Older ones beside it are removed when its content is installed.
    type: path
  state:
    description: V(absent) removes the environment, also one that is half-made.
    choices: [present, absent]
    default: present
    type: str
author: [The Millrace authors]
"""

EXAMPLES = r"""
- name: Install the agents
  millrace_environment:
    home: /opt/millrace
    python: python3
    digest: 0123456789abcdef
    archive: /var/cache/millrace/wheels-0123456789abcdef.tar
"""

RETURN = r"""
installed: {description: Digest of what was installed before; null for nothing., type: str, returned: always}
"""

PROVES = "import agents.agent.agent, agents.cpu, pyarrow"
NOT_COMPILED = r"/(pygments/(lexers|styles)|pyarrow/tests|pip)/"


class FailedError(Exception):
    """Raised when a step fails, with its message."""


def run(*words):
    """Run a program."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd="/", umask=0o022)
    if done.returncode != 0:
        raise FailedError(f"{' '.join(map(str, words[:4]))}: {(done.stderr or done.stdout).strip()[-2000:]}")


def install(home, python, digest, archive):
    """Create the environment beside the one in use, then switch to it."""
    home.mkdir(mode=0o755, parents=True, exist_ok=True)
    folder = home / f"{PREFIX}{digest}"
    shutil.rmtree(folder, ignore_errors=True)
    run(shutil.which(python), "-I", "-m", "venv", "--without-pip", folder)
    wheels = folder / "wheels"
    with tarfile.open(archive) as packed:
        # Its paths were made by the controller, which is trusted with root here.
        packed.extractall(wheels)  # noqa: S202
    own = folder / "bin" / "python"
    names = sorted(str(file) for file in wheels.glob("*.whl"))
    run(own, "-I", wheels / "pip.zip" / "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile", *names)
    shutil.rmtree(wheels)
    # The agents' user cannot write there: files not compiled now would be compiled at every start.
    run(own, "-I", "-m", "compileall", "-q", "-x", NOT_COMPILED, folder / "lib")
    run(own, "-P", "-c", PROVES)
    (folder / DONE).touch()
    link = home / f".{LINK}-new"
    with suppress(FileNotFoundError):
        link.unlink()
    link.symlink_to(folder.name)
    link.replace(home / LINK)
    for other in home.glob(f"{PREFIX}*"):
        if other != folder:
            shutil.rmtree(other)
    for other in Path(archive).parent.glob("wheels-*.tar"):
        if other != Path(archive):
            other.unlink()


def remove(home, check_mode):
    """Remove every environment; return whether there was one."""
    found = [path for path in home.glob(f"{PREFIX}*") if path.is_dir()]
    link = home / LINK
    if not check_mode:
        with suppress(FileNotFoundError):
            link.unlink()
        for path in found:
            shutil.rmtree(path)
    return bool(found)


def main():
    """Run as Ansible runs modules."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "python": {"type": "str"},
            "digest": {"type": "str"},
            "archive": {"type": "path"},
            "state": {"choices": ["present", "absent"], "default": "present"},
        },
        required_if=[("state", "present", ("python", "digest", "archive"))],
        supports_check_mode=True,
    )
    asked = module.params
    home = Path(asked["home"])
    before, wanted = installed(home), asked["digest"]
    try:
        if asked["state"] == "absent":
            changed = remove(home, module.check_mode)
        else:
            changed = before != wanted
            if changed and not module.check_mode:
                install(home, asked["python"], wanted, asked["archive"])
    except (FailedError, OSError, tarfile.TarError) as fault:
        module.fail_json(msg=str(fault))
    diff = {"before": f"environment: {before}\n", "after": f"environment: {wanted}\n"}
    module.exit_json(changed=changed, installed=before, diff=diff)


if __name__ == "__main__":
    main()

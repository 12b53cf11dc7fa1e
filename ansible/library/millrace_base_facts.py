"""Ansible module: gather facts about the base installation of a host and the target of its wheels."""

import json
import platform
import pwd
import shutil
import subprocess
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.millrace_installed import installed

DOCUMENTATION = r"""
module: millrace_base_facts
short_description: Gather facts about the base installation of a host and the target of its wheels
options:
  home: {description: Folder of the environment., type: path, required: true}
  python: {description: Python of the agents., type: str, required: true}
  user: {description: User that agents run as., type: str, required: true}
  programs: {description: "Program -> package that contains it.", type: dict, required: true}
author: [The Millrace authors]
"""

EXAMPLES = r"""
- name: Gather facts about the base installation
  millrace_base_facts:
    home: /opt/millrace
    python: python3
    user: millrace
    programs: {tc: iproute2}
"""

RETURN = r"""
target: {description: "Target of the wheels, such as C(3.11-x86_64-glibc2.36).", type: str, returned: always}
user_home: {description: The user's home; none when there is no such user., type: str, returned: always}
has_home: {description: Whether the folder exists., type: bool, returned: always}
installed: {description: Digest of the environment in use if it is complete., type: str, returned: always}
missing: {description: Packages whose program is missing., type: list, returned: always}
"""

OLDEST = (3, 11)
ASK = "import json, sys, sysconfig; print(json.dumps([*sys.version_info[:2], sysconfig.get_platform()]))"
SYSTEM_FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def target(module, python):
    """Return Python's version, architecture and C library; fail when there is no such Python."""
    path = shutil.which(python)
    if path is None:
        module.fail_json(msg=f"millrace_python: there is no {python!r} on this host")
    done = subprocess.run([path, "-I", "-c", ASK], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        module.fail_json(msg=f"millrace_python: {path} does not run: {done.stderr.strip()}")
    major, minor, _ = json.loads(done.stdout)
    if (major, minor) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        module.fail_json(msg=f"millrace_python: {path} is Python {major}.{minor}; {wanted} or newer is needed")
    library, version = platform.libc_ver()
    if library != "glibc":
        module.fail_json(msg=f"its C library is {library or 'unknown'}; packages are available for glibc only")
    return f"{major}.{minor}-{platform.machine()}-glibc{version}"


def home_of(user):
    """Return the user's home; None when there is no such user."""
    try:
        return pwd.getpwnam(user).pw_dir
    except KeyError:
        return None


def main():
    """Run as Ansible runs modules."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "python": {"type": "str", "required": True},
            "user": {"type": "str", "required": True},
            "programs": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    asked = module.params
    programs = sorted(asked["programs"].items())
    module.exit_json(
        changed=False,
        target=target(module, asked["python"]),
        user_home=home_of(asked["user"]),
        has_home=Path(asked["home"]).is_dir(),
        installed=installed(Path(asked["home"])),
        missing=sorted({package for name, package in programs if shutil.which(name, path=SYSTEM_FOLDERS) is None}),
    )


if __name__ == "__main__":
    main()

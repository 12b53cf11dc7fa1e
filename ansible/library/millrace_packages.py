"""Ansible module: install packages of the distribution for a role, and restore the packages that they replaced."""

import os
import subprocess
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.millrace_pre_state import PreState, PreStateError, boot_id

DOCUMENTATION = r"""
module: millrace_packages
short_description: Install packages of the distribution for a role, and restore the packages that they replaced
description:
  - Runs C(apt-get). The packages that it installs and removes are saved in C(pre_state.json) before any change.
  - M(ansible.builtin.apt) needs C(python3-apt), does not support check mode without it, and installs it without a
    record, so that it could not be removed again.
options:
  folder: {description: Folder of C(pre_state.json)., type: path, required: true}
  role: {description: The role that needs them; the original state is saved under its name., type: str, required: true}
  names: {description: The packages., type: list, elements: str, default: []}
  state:
    description: V(absent) restores removed packages.
    choices: [present, absent]
    default: present
    type: str
  remove: {description: "With O(state=absent): remove installed packages.", type: bool, default: false}
author: [The Millrace authors]
"""

EXAMPLES = r"""
- name: Install chrony
  millrace_packages:
    folder: "{{ millrace_state }}"
    role: clock
    names: [chrony]
"""

RETURN = r"""
installs: {description: Installed packages., type: list, elements: str, returned: always}
removes: {description: Removed packages., type: list, elements: str, returned: always}
"""

QUIET = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
INSTALL = ("install", "--no-install-recommends")
LOCK_S = 600
"""Timeout for the lock of another program, such as unattended upgrades."""

LISTS = Path("/var/lib/apt/lists")
FRESH_S = 24 * 3600


class PackageError(Exception):
    """Raised when a package cannot be installed, with apt's message."""


class Packages:
    """Packages of this host, and the effect of apt-get commands."""

    def states(self):
        """Return package -> dpkg's name of its state."""
        lines = run("dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n").splitlines()
        return dict(line.split() for line in lines)

    def installed(self):
        """Return the names of installed packages."""
        return {name for name, state in self.states().items() if state == "installed"}

    def effect(self, *words):
        """Return (installed packages, removed packages) of an apt-get command, without running it."""
        lines = [line.split() for line in apt(*words, "--simulate").splitlines()]
        come = {line[1] for line in lines if line[:1] == ["Inst"]}
        go = {line[1] for line in lines if line[:1] in (["Remv"], ["Purg"])}
        return sorted(come), sorted(go - come)

    def refresh(self):
        """Update the package lists unless they are less than a day old."""
        dated = max((path.stat().st_mtime for path in LISTS.glob("*Packages*")), default=0.0)
        if time.time() - dated > FRESH_S:
            apt("update")

    def may_go(self, names):
        """Return the packages that can be removed without removing others."""
        if set(self.effect("purge", *names)[1]) <= set(names):
            return names
        return [name for name in names if set(self.effect("purge", name)[1]) <= set(names)]


def run(*words):
    """Return the output of a program."""
    done = subprocess.run(words, env=QUIET, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("E: ")] or [done.stderr.strip()[-1000:]]
        raise PackageError(f"{' '.join(words[:8])}: {'; '.join(said)}")
    return done.stdout


def apt(*words):
    """Run apt-get and return its output; changed configuration files are kept."""
    options = ("Dpkg::Options::=--force-confold", f"DPkg::Lock::Timeout={LOCK_S}")
    return run("apt-get", "--quiet", "--yes", *(part for option in options for part in ("-o", option)), *words)


def mend():
    """Finish an interrupted installation, which apt requires first."""
    run("dpkg", "--force-confold", "--configure", "--pending")


def apply(packages, kept, section, names, check_mode):
    """Install missing packages; return (installed packages, removed packages)."""
    missing = sorted(set(names) - packages.installed()) if names else []
    if not missing:
        return [], []
    if not check_mode:
        mend()
        packages.refresh()
    try:
        come, go = packages.effect(*INSTALL, *missing)
    except PackageError:
        if not check_mode:
            raise
        # The package lists may be outdated or missing, and check mode does not update them.
        return missing, []
    if not check_mode:
        note(kept, section, come, go)
        apt(*INSTALL, *missing)
    return come, go


def note(kept, section, come, go):
    """Save the changes that follow, in addition to earlier ones."""
    kept.save(section, {})
    known = kept.section(section).get("applied", {"installs": [], "removes": []})
    applied = {
        # A package that we removed was not installed by us, whatever else changed in between.
        "installs": sorted({*known["installs"], *come} - {*known["removes"]}),
        "removes": sorted({*known["removes"], *go} - {*known["installs"]}),
    }
    kept.note(section, applied)


def restore(packages, kept, section, remove, check_mode):
    """Restore removed packages and remove installed ones; return (installed packages, removed packages)."""
    found = kept.section(section)
    if found is None:
        return [], []
    if not check_mode:
        mend()
    # Without `applied`, the role was interrupted before any change.
    applied, states = found.get("applied", {"installs": [], "removes": []}), packages.states()
    missing = [name for name in applied["removes"] if states.get(name) != "installed"]
    come, go = packages.effect(*INSTALL, *missing) if missing else ([], [])
    if missing and not check_mode:
        packages.refresh()
        apt(*INSTALL, *missing)
    states = packages.states()
    ours = [name for name in applied["installs"] if states.get(name, "not-installed") != "not-installed"]
    # A package that was removed in turn has left its configuration files.
    leave = ours if remove else [name for name in ours if states[name] == "config-files"]
    if check_mode and remove:
        go = sorted({*go, *leave})
    elif leave:
        leave = packages.may_go(leave)
        apt("purge", *leave)
        go = sorted({*go, *leave})
    if not check_mode:
        kept.drop(section)
    return come, go


def main():
    """Run as Ansible runs modules."""
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            "role": {"type": "str", "required": True},
            "names": {"type": "list", "elements": "str", "default": []},
            "state": {"choices": ["present", "absent"], "default": "present"},
            "remove": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    asked = module.params
    kept, section = PreState(asked["folder"], boot_id()), f"packages/{asked['role']}"
    try:
        if asked["state"] == "present":
            come, go = apply(Packages(), kept, section, asked["names"], module.check_mode)
            changed = bool(come or go)
        else:
            changed = kept.section(section) is not None
            come, go = restore(Packages(), kept, section, asked["remove"], module.check_mode)
    except (PackageError, PreStateError, OSError) as fault:
        module.fail_json(msg=str(fault))
    diff = {"before": "".join(f"{name}\n" for name in go), "after": "".join(f"{name}\n" for name in come)}
    module.exit_json(changed=changed, installs=come, removes=go, diff=diff)


if __name__ == "__main__":
    main()

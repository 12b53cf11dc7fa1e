"""Ansible module: packages of the distribution that a role needs, and what its host had in their place."""

import os
import subprocess
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.millrace_pre_state import PreState, PreStateError, boot_id

DOCUMENTATION = r"""
module: millrace_packages
short_description: Packages of the distribution that a role needs, and what its host had in their place
description:
  - Runs C(apt-get). Which packages come with those that are named, and which have to give way to them, is kept in
    C(pre_state.json) before anything is installed.
  - M(ansible.builtin.apt) needs C(python3-apt). Where it is missing nothing can be checked, and it is installed without
    being told, so that it could not be taken back.
options:
  folder: {description: Folder of C(pre_state.json)., type: path, required: true}
  role: {description: The role that needs them; what was found is kept under its name., type: str, required: true}
  names: {description: The packages., type: list, elements: str, default: []}
  state:
    description: V(absent) brings back what has given way.
    choices: [present, absent]
    default: present
    type: str
  remove: {description: "With O(state=absent): what was installed goes.", type: bool, default: false}
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
installs: {description: Packages that come., type: list, elements: str, returned: always}
removes: {description: Packages that go., type: list, elements: str, returned: always}
"""

QUIET = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
INSTALL = ("install", "--no-install-recommends")
LOCK_S = 600
"""How long another program, such as unattended upgrades, may take with the packages."""

LISTS = Path("/var/lib/apt/lists")
FRESH_S = 24 * 3600


class PackageError(Exception):
    """A package that cannot be had here; in the words of apt."""


class Packages:
    """The packages of this host, as they are and as they would be."""

    def states(self):
        """Package -> word of dpkg for its state."""
        lines = run("dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n").splitlines()
        return dict(line.split() for line in lines)

    def installed(self):
        """Names of all that are installed."""
        return {name for name, state in self.states().items() if state == "installed"}

    def effect(self, *words):
        """(packages that would come, packages that would go) by a command of apt-get's."""
        lines = [line.split() for line in apt(*words, "--simulate").splitlines()]
        come = {line[1] for line in lines if line[:1] == ["Inst"]}
        go = {line[1] for line in lines if line[:1] in (["Remv"], ["Purg"])}
        return sorted(come), sorted(go - come)

    def refresh(self):
        """Fetch the lists of packages unless they are from today."""
        dated = max((path.stat().st_mtime for path in LISTS.glob("*Packages*")), default=0.0)
        if time.time() - dated > FRESH_S:
            apt("update")

    def may_go(self, names):
        """Those of the packages without which all others can stay."""
        if set(self.effect("purge", *names)[1]) <= set(names):
            return names
        return [name for name in names if set(self.effect("purge", name)[1]) <= set(names)]


def run(*words):
    """What a program prints."""
    done = subprocess.run(words, env=QUIET, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("E: ")] or [done.stderr.strip()[-1000:]]
        raise PackageError(f"{' '.join(words[:8])}: {'; '.join(said)}")
    return done.stdout


def apt(*words):
    """What apt-get prints; files of settings that somebody has changed stay as they are."""
    options = ("Dpkg::Options::=--force-confold", f"DPkg::Lock::Timeout={LOCK_S}")
    return run("apt-get", "--quiet", "--yes", *(part for option in options for part in ("-o", option)), *words)


def mend():
    """Finish what was cut off: apt does nothing before that."""
    run("dpkg", "--force-confold", "--configure", "--pending")


def give(packages, kept, section, names, check_mode):
    """Install what is missing; (packages that come, packages that go)."""
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
        # The lists may be older than the packages, or not there: it is only known once they have been fetched.
        return missing, []
    if not check_mode:
        note(kept, section, come, go)
        apt(*INSTALL, *missing)
    return come, go


def note(kept, section, come, go):
    """Keep what is about to change, beside what has changed before."""
    kept.save(section, {})
    known = kept.section(section).get("applied", {"installs": [], "removes": []})
    applied = {
        # What has given way to us was not installed by us, whatever else comes and goes in between.
        "installs": sorted({*known["installs"], *come} - {*known["removes"]}),
        "removes": sorted({*known["removes"], *go} - {*known["installs"]}),
    }
    kept.note(section, applied)


def take_back(packages, kept, section, remove, check_mode):
    """Bring back what has given way, and remove what was installed; (packages that come, packages that go)."""
    found = kept.section(section)
    if found is None:
        return [], []
    if not check_mode:
        mend()
    # Without it the role was cut off before it changed anything.
    applied, states = found.get("applied", {"installs": [], "removes": []}), packages.states()
    missing = [name for name in applied["removes"] if states.get(name) != "installed"]
    come, go = packages.effect(*INSTALL, *missing) if missing else ([], [])
    if missing and not check_mode:
        packages.refresh()
        apt(*INSTALL, *missing)
    states = packages.states()
    ours = [name for name in applied["installs"] if states.get(name, "not-installed") != "not-installed"]
    # What has given way in turn has left its settings behind.
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
            come, go = give(Packages(), kept, section, asked["names"], module.check_mode)
            changed = bool(come or go)
        else:
            changed = kept.section(section) is not None
            come, go = take_back(Packages(), kept, section, asked["remove"], module.check_mode)
    except (PackageError, PreStateError, OSError) as fault:
        module.fail_json(msg=str(fault))
    diff = {"before": "".join(f"{name}\n" for name in go), "after": "".join(f"{name}\n" for name in come)}
    module.exit_json(changed=changed, installs=come, removes=go, diff=diff)


if __name__ == "__main__":
    main()

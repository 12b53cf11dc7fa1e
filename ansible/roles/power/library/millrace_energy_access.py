"""Ansible module: a group's right to read the kernel's energy counters, now and after a reboot."""

import grp
import os
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.millrace_pre_state import PreState, PreStateError, boot_id

DOCUMENTATION = r"""
module: millrace_energy_access
short_description: A group's right to read the kernel's energy counters, now and after a reboot
description:
  - Since Linux 5.10 C(energy_uj) is for root only. A udev rule gives it to a group whenever the kernel creates it;
    existing counters are changed immediately.
  - The original state is saved in C(pre_state.json) before it is changed.
options:
  folder: {description: Folder of C(pre_state.json)., type: path, required: true}
  group: {description: The group that may read., type: str, required: true}
  state:
    description: V(absent) restores the original state.
    choices: [present, absent]
    default: present
    type: str
  root: {description: Replaces V(/)., type: path, default: /}
author: [The Millrace authors]
"""

EXAMPLES = r"""
- name: Let agents read energy counters
  millrace_energy_access:
    folder: /var/lib/millrace
    group: millrace
"""

RETURN = r"""
counters: {description: Files of the energy counters of this host., type: list, returned: always}
"""

SECTION, RIGHTS = "energy_access", "energy_rights"
RULE = "etc/udev/rules.d/70-millrace-energy.rules"
TEXT = """\
# Written by Millrace: the group {group} may read energy counters, which are for root only otherwise.
SUBSYSTEM=="powercap", ACTION=="add|change", TEST=="energy_uj", \\
  RUN+="/bin/chgrp {group} /sys%p/energy_uj", RUN+="/bin/chmod g+r /sys%p/energy_uj"
"""
COUNTERS = "sys/class/powercap/*/energy_uj"


class Access:
    """The rule and the current rights; both are saved before they are changed."""

    def __init__(self, root, kept, group):
        self.root, self._kept, self._group = root, kept, group
        self.counters = sorted(str(path.relative_to(root)) for path in root.glob(COUNTERS))

    def rule(self):
        """Return the text of the rule, or None."""
        try:
            return (self.root / RULE).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def rights(self):
        """Return counter -> [group, mode]."""
        found = {}
        for path in self.counters:
            about = (self.root / path).stat()
            found[path] = [about.st_gid, stat.S_IMODE(about.st_mode)]
        return found

    def apply(self, check_mode):
        """Grant the right; return (before, after) as text."""
        rule, rights = self.rule(), self.rights()
        wanted_rule = TEXT.format(group=self._group)
        gid = self._gid(check_mode)
        wanted = {path: [gid, mode | stat.S_IRGRP] for path, (_, mode) in rights.items()}
        if (rule, rights) != (wanted_rule, wanted) and not check_mode:
            # A host without udev has no folder for its rules either.
            missing = [str(folder) for folder in Path(RULE).parents if not (self.root / folder).exists()]
            self._kept.save(SECTION, {"rule": rule, "missing": missing})
            # A reboot creates the counters again, which makes their saved state void.
            self._kept.save(RIGHTS, {"rights": rights}, volatile=True)
            self._put(wanted_rule, wanted)
        return _text(rule, rights), _text(wanted_rule, wanted)

    def restore(self, check_mode):
        """Restore the original state; return (before, after) as text."""
        section, volatile = self._kept.section(SECTION), self._kept.section(RIGHTS)
        rule, rights = self.rule(), self.rights()
        wanted_rule = section["before"]["rule"] if section else rule
        kept = volatile["before"]["rights"] if volatile else {}
        wanted = {path: kept.get(path, right) for path, right in rights.items()}
        if (section or volatile) and not check_mode:
            self._put(wanted_rule, wanted)
            for folder in section["before"].get("missing", []) if section else []:
                with suppress(OSError):  # other rules may have been added since
                    (self.root / folder).rmdir()
            self._kept.drop(RIGHTS)
            self._kept.drop(SECTION)
        return _text(rule, rights), _text(wanted_rule, wanted)

    def _gid(self, check_mode):
        try:
            return grp.getgrnam(self._group).gr_gid
        except KeyError:
            if check_mode:
                return -1  # it is made before this in earnest
            raise

    def _put(self, rule, rights):
        path = self.root / RULE
        if rule is None:
            path.unlink(missing_ok=True)
        elif rule != self.rule():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(rule, encoding="utf-8")
        for counter, (gid, mode) in rights.items():
            os.chown(self.root / counter, -1, gid)
            (self.root / counter).chmod(mode)


def _text(rule, rights):
    lines = [f"{path}: group {gid}, mode {mode:04o}" for path, (gid, mode) in sorted(rights.items())]
    return "\n".join([rule or "no rule\n", *lines, ""])


def main():
    """Run as Ansible runs modules."""
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            "group": {"type": "str", "required": True},
            "state": {"choices": ["present", "absent"], "default": "present"},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    asked = module.params
    access = Access(Path(asked["root"]), PreState(asked["folder"], boot_id()), asked["group"])
    try:
        change = access.apply if asked["state"] == "present" else access.restore
        before, after = change(module.check_mode)
    except KeyError:
        module.fail_json(msg=f"there is no group {asked['group']!r}; the role base makes it")
    except (PreStateError, OSError) as fault:
        module.fail_json(msg=str(fault))
    changed = before != after
    if changed and not module.check_mode and asked["root"] == "/":
        # Without udev, in a namespace, the rule has no reader; the rights are set either way.
        subprocess.run(["sh", "-c", "command -v udevadm && udevadm control --reload"], capture_output=True, check=False)
    module.exit_json(changed=changed, counters=access.counters, diff={"before": before, "after": after})


if __name__ == "__main__":
    main()

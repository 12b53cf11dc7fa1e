"""Ansible module: limits of CPU time and memory for the agents of a host, and their original state."""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.millrace_limits import ENTRANCES, LimitError, holder
from ansible.module_utils.millrace_pre_state import PreState, PreStateError, boot_id

DOCUMENTATION = r"""
module: millrace_limits
short_description: Limits of CPU time and memory for the agents of a host
description:
  - With systemd the slice of the user holds them, elsewhere a control group that agents enter when they start.
  - What was there is kept in C(pre_state.json) before it is changed.
options:
  folder: {description: Folder of C(pre_state.json)., type: path, required: true}
  home: {description: Folder of what is installed; agents find there what they enter., type: path, required: true}
  user: {description: The user that agents run as., type: str, required: true}
  service_manager: {description: What starts services., type: str, choices: [systemd, none], default: systemd}
  cpu_share: {description: "CPU time, in cores.", type: float}
  memory_mb: {description: Memory in units of 1024**2 bytes., type: int}
  state:
    description: V(absent) puts back what was found.
    choices: [present, absent]
    default: present
    type: str
  root: {description: Stands for V(/)., type: path, default: /}
author: [The Millrace authors]
"""

EXAMPLES = r"""
- name: Half a core and 2 GiB
  millrace_limits:
    folder: "{{ millrace_state }}"
    home: "{{ millrace_home }}"
    user: "{{ millrace_user }}"
    cpu_share: 0.5
    memory_mb: 2048
"""

RETURN = r"""
values: {description: "File -> value of the limits, as they are now.", type: dict, returned: always}
"""

SECTION = "limits"


class Limits:
    """Current and requested limits of a host: `{cpu: cores or None, memory: MiB or None}`."""

    def __init__(self, kept, home, root, holder_of):
        self._kept = kept
        self._home = Path(home)
        self._section = kept.section(SECTION)
        # Limits are restored by the means that set them, even if the inventory has changed.
        self._held_by = self._section["before"]["held_by"] if self._section else holder_of
        self.holder = holder(root, **self._held_by)

    def is_as_requested(self, requested):
        """Return whether the requested limits are set."""
        if not any(requested.values()):
            return self._section is None and not self._entrances()
        return (
            self._section is not None
            and self._section.get("applied") == requested
            and self.holder.is_set(requested)
            and self._entrances() == self.holder.entrances(requested)
        )

    def apply(self, requested):
        """Save the original state, then set the limits."""
        before = {**self.holder.found(), "held_by": self._held_by}
        self._kept.save(SECTION, before, volatile=self._held_by["service_manager"] == "none")
        if self._section and self._section.get("applied") != requested:
            self.holder.restore(self._section["before"])
        self.holder.set(requested)
        if not self._home.is_dir():
            raise LimitError(f"{self._home} is not there: the role base makes it")
        self._say_entrances(self.holder.entrances(requested))
        self._kept.note(SECTION, requested)

    def restore(self):
        """Restore the original state."""
        self._say_entrances([])
        if self._section:
            self.holder.restore(self._section["before"])
            self._kept.drop(SECTION)

    def _entrances(self):
        try:
            return (self._home / ENTRANCES).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []

    def _say_entrances(self, paths):
        if paths:
            (self._home / ENTRANCES).write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")
        else:
            (self._home / ENTRANCES).unlink(missing_ok=True)


def described(values):
    """Return values as text, one per line."""
    return "".join(f"{path}: {value}\n" for path, value in values.items() if value is not None)


def main():
    """Run as Ansible runs modules."""
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            "home": {"type": "path", "required": True},
            "user": {"type": "str", "required": True},
            "service_manager": {"choices": ["systemd", "none"], "default": "systemd"},
            "cpu_share": {"type": "float"},
            "memory_mb": {"type": "int"},
            "state": {"choices": ["present", "absent"], "default": "present"},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    asked = module.params
    present = asked["state"] == "present"
    requested = {"cpu": asked["cpu_share"] if present else None, "memory": asked["memory_mb"] if present else None}
    root = Path(asked["root"])
    try:
        kept = PreState(asked["folder"], boot_id(root))
        holder_of = {"user": asked["user"], "service_manager": asked["service_manager"]}
        limits = Limits(kept, asked["home"], root, holder_of)
        before = limits.holder.now()
        changed = not limits.is_as_requested(requested)
        if changed and not module.check_mode:
            if any(requested.values()):
                limits.apply(requested)
            else:
                limits.restore()
        elif present:
            for refusal in limits.holder.refusals(requested):
                raise LimitError(refusal)
        after = {**before, **limits.holder.asked(requested)} if module.check_mode and present else limits.holder.now()
    except (LimitError, PreStateError, OSError) as fault:
        module.fail_json(msg=str(fault))
    diff = {"before": described(before), "after": described(after)} if changed else {}
    module.exit_json(changed=changed, values=after, diff=diff)


if __name__ == "__main__":
    main()

"""Ansible module: set online cores, governor, clock range and turbo of a host, and restore them."""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.millrace_cpu import REQUESTED_CPU, SECTION, CpuError, CpuProgram, found_before
from ansible.module_utils.millrace_pre_state import PreState, PreStateError, boot_id

DOCUMENTATION = r"""
module: millrace_cpu
short_description: Set online cores, governor, clock range and turbo of a host
description:
  - The original values are saved in C(pre_state.json) before any change, and every value is read back.
options:
  folder: {description: Folder of C(pre_state.json)., type: path, required: true}
  archive: {description: The program that sets CPUs., type: str, required: true}
  requested:
    description: Requested settings. Other settings are not changed.
    type: dict
    default: {}
    suboptions: &requested
      cores: {description: Physical online cores., type: int}
      smt: {description: Whether siblings are online., type: bool}
      governor: {description: Governor of every policy., type: str}
      min_ghz: {description: Lower end of the clock range., type: float}
      max_ghz: {description: Upper end of the clock range., type: float}
      turbo: {description: Whether clocks above the base clock are allowed., type: bool}
      epp: {description: Energy-performance preference., type: str}
      driver_mode: {description: Mode of the driver., type: str}
  assuming:
    description: Settings that another task applies; they do not count as a change of this task.
    type: dict
    default: {}
    suboptions: *requested
  state:
    description: V(absent) restores the original values.
    choices: [present, absent]
    default: present
    type: str
  root: {description: Replaces V(/)., type: path, default: /}
author: [The Millrace authors]
"""

EXAMPLES = r"""
- name: Two cores with a fixed clock
  millrace_cpu:
    folder: "{{ millrace_state }}"
    archive: "{{ lookup('millrace_archive') }}"
    requested: {cores: 2, governor: performance, min_ghz: 2.4, max_ghz: 2.4, turbo: false}
"""

RETURN = r"""
settings:
  description: "One entry per file: what, path, before, asked, got, ok, reason."
  type: list
  elements: dict
  returned: always
"""


class Cpus:
    """CPUs of a host: planned changes, application and restoration."""

    def __init__(self, kept, program):
        self._kept = kept
        self._program = program
        self._before = found_before(kept)

    def planned(self, requested, assuming):
        """Return what applying the request would change: `{changed, settings, refused}`."""
        assumed = self._ask("plan", requested=assuming)
        plan = self._ask("plan", requested={**requested, **given(assuming)})
        if assumed["changed"] and not plan["refused"]:
            others = {setting["path"] for setting in assumed["settings"]}
            plan["settings"] = [setting for setting in plan["settings"] if setting["path"] not in others]
            plan["changed"] = any(setting["before"] != setting["asked"] for setting in plan["settings"])
        return plan

    def apply(self, requested):
        """Save the original values, apply the request, and return the program's response."""
        if self._before is None:
            self._before = self._ask("facts")["before"]
            self._kept.save(SECTION, self._before, volatile=True)
        answer = self._ask("apply", requested=requested)
        if "before" in answer:
            # It now includes files that appeared only now, such as the clocks of cores that were offline.
            self._kept.note(SECTION, answer["before"])
        return answer

    def back(self, check):
        """Restore the original values, or check what that would change; return the program's response."""
        if self._before is None:
            answer = {"changed": False, "settings": [], "refused": []}
        else:
            answer = self._ask("restore", check=check)
        if not check and not broken(answer):
            self._kept.drop(SECTION)
        return answer

    def _ask(self, verb, **request):
        return self._program.ask(verb, before=self._before, **request)


def given(requested):
    """Return the settings that are not None."""
    return {name: value for name, value in requested.items() if value is not None}


def broken(answer):
    """Return the refused settings and those that did not take effect, a sentence each."""
    refused = [refusal["message"] for refusal in answer["refused"]]
    missed = [setting for setting in answer["settings"] if setting.get("ok") is False]
    return refused + [f"{s['what']}: asked {s['asked']}, got {s['got']}; {s['reason']}" for s in missed]


def main():
    """Run as Ansible runs modules."""
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            "archive": {"type": "str", "required": True},
            "requested": {"type": "dict", "default": {}, "options": REQUESTED_CPU},
            "assuming": {"type": "dict", "default": {}, "options": REQUESTED_CPU},
            "state": {"choices": ["present", "absent"], "default": "present"},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    asked = module.params
    try:
        program = CpuProgram(asked["archive"], module.tmpdir, asked["root"])
        cpus = Cpus(PreState(asked["folder"], boot_id(asked["root"])), program)
        if asked["state"] == "absent":
            answer = cpus.back(module.check_mode)
        else:
            answer = cpus.planned(asked["requested"], asked["assuming"])
            if answer["changed"] and not module.check_mode:
                answer = cpus.apply(asked["requested"])
    except (CpuError, PreStateError, OSError) as fault:
        module.fail_json(msg=str(fault))
    settings = answer["settings"]
    shown = [s for s in settings if s["before"] != s["asked"]] if answer["changed"] else []
    diff = {
        "before": "".join(f"{s['path'] or s['what']}: {s['before']}\n" for s in shown),
        "after": "".join(f"{s['path'] or s['what']}: {s['asked']}\n" for s in shown),
    }
    faults = broken(answer)
    if faults:
        module.fail_json(msg="; ".join(faults), settings=settings, changed=answer["changed"], diff=diff)
    module.exit_json(changed=answer["changed"], settings=settings, diff=diff)


if __name__ == "__main__":
    main()

"""Ansible module: save, read and remove the original state of a host."""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.millrace_pre_state import PreState, PreStateError, boot_id

DOCUMENTATION = r"""
module: millrace_pre_state
short_description: Save, read and remove the original state of a host
description:
  - Sections are stored in C(pre_state.json) of O(folder). An existing section is never overwritten, unless it is
    O(volatile) and of an earlier boot.
options:
  folder: {description: Folder of the file., type: path, required: true}
  section: {description: Name of the section. Without it every section is read., type: str}
  before: {description: Original state. It is saved unless the section exists., type: dict}
  volatile: {description: A reboot resets the settings of this section., type: bool, default: false}
  state:
    description: V(present) saves O(before); V(read) changes nothing; V(absent) removes the section.
    choices: [present, read, absent]
    default: present
    type: str
author: [The Millrace authors]
"""

EXAMPLES = r"""
- name: Save whether the user existed
  millrace_pre_state:
    folder: "{{ millrace_state }}"
    section: user
    before: {existed: true}
"""

RETURN = r"""
section: {description: "The section, or null.", type: dict, returned: when a section was named}
sections: {description: Every section that is valid for this boot., type: dict, returned: always}
"""


def main():
    """Run as Ansible runs modules."""
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            "section": {"type": "str"},
            "before": {"type": "dict"},
            "volatile": {"type": "bool", "default": False},
            "state": {"choices": ["present", "read", "absent"], "default": "present"},
        },
        required_if=[("state", "present", ("section", "before")), ("state", "absent", ("section",))],
        supports_check_mode=True,
    )
    asked = module.params
    kept = PreState(asked["folder"], boot_id())
    try:
        there = kept.section(asked["section"])
        changed = asked["state"] != "read" and (there is None) == (asked["state"] == "present")
        if changed and not module.check_mode:
            if asked["state"] == "present":
                kept.save(asked["section"], asked["before"], volatile=asked["volatile"])
            else:
                kept.drop(asked["section"])
        sections = kept.sections()
    except (PreStateError, OSError) as fault:
        module.fail_json(msg=str(fault))
    module.exit_json(changed=changed, sections=sections, section=sections.get(asked["section"]))


if __name__ == "__main__":
    main()

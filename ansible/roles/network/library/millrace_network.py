"""Ansible module: rate and delay of this host's links to others, and their original state."""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.millrace_links import Device, LinkError, routed
from ansible.module_utils.millrace_pre_state import PreState, PreStateError, boot_id

DOCUMENTATION = r"""
module: millrace_network
short_description: Rate and delay of the links from this host to others
description:
  - A class of C(htb) per destination holds its rate, C(netem) below it its delay. Anything else passes unshaped.
  - What an interface was like is kept in C(pre_state.json) before it is changed.
options:
  folder: {description: Folder of C(pre_state.json)., type: path, required: true}
  links:
    description: One entry per destination; what it does not ask for stays as it is.
    type: list
    elements: dict
    default: []
    suboptions:
      to: {description: Name of the destination., type: str, required: true}
      address: {description: Its address., type: str, required: true}
      rate_mbit: {description: Rate in Mbit/s of whole frames., type: float}
      delay_ms: {description: Delay in one direction in ms., type: float}
  state:
    description: V(absent) puts the interfaces back as they were found.
    choices: [present, absent]
    default: present
    type: str
author: [The Millrace authors]
"""

EXAMPLES = r"""
- name: Shape the link to n2
  millrace_network:
    folder: "{{ millrace_state }}"
    links: [{to: n2, address: 10.0.0.2, rate_mbit: 100}]
"""

RETURN = r"""
devices: {description: Interfaces that are shaped., type: list, elements: str, returned: always}
"""

LINK = {
    "to": {"type": "str", "required": True},
    "address": {"type": "str", "required": True},
    "rate_mbit": {"type": "float"},
    "delay_ms": {"type": "float"},
}


def described(links):
    """Return links as text, one per line."""
    lines = []
    for link in links:
        rate = f"{link['rate_mbit']:g} Mbit/s" if link["rate_mbit"] else "unlimited"
        lines.append(f"{link['to']} ({link['ip']}): {rate}, {link['delay_ms'] or 0:g} ms\n")
    return "".join(lines)


class Links:
    """Current and requested links of this host."""

    def __init__(self, kept, asked):
        self._kept = kept
        self._asked = asked
        sections = kept.sections()
        self._saved = {
            name.partition("/")[2]: section for name, section in sections.items() if name.startswith("network/")
        }

    def as_set(self, name):
        """Return the links set on an interface, or None if it has been changed since."""
        applied = self._saved.get(name, {}).get("applied")
        if applied and applied["state"] == Device(name).state():
            return applied["links"]
        return None

    def changes(self):
        """Return (interface, current links, requested links) wherever the two differ."""
        found = []
        for name in sorted({*self._asked, *self._saved}):
            is_now, wanted = self.as_set(name), self._asked.get(name, [])
            if is_now != wanted:
                found.append((name, is_now, wanted))
        return found

    def apply(self, name, wanted):
        """Save the original state of an interface, then shape it."""
        section, device = f"network/{name}", Device(name)
        if name not in self._saved:
            self._kept.save(section, device.found(), volatile=True)
        if wanted:
            device.shape(wanted)
            self._kept.note(section, {"links": wanted, "state": device.state()})
        else:
            device.restore(self._saved[name]["before"])
            self._kept.drop(section)


def main():
    """Run as Ansible runs modules."""
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            "links": {"type": "list", "elements": "dict", "options": LINK, "default": []},
            "state": {"choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    asked = module.params
    try:
        wanted_by_device = routed(asked["links"]) if asked["state"] == "present" else {}
        links = Links(PreState(asked["folder"], boot_id()), wanted_by_device)
        changes = links.changes()
        shown = [
            {
                "before_header": name,
                "after_header": name,
                "before": described(is_now) if is_now is not None else "\n".join([*Device(name).qdiscs(), ""]),
                "after": described(wanted) if wanted else "as it was found\n",
            }
            for name, is_now, wanted in changes
        ]
        if not module.check_mode:
            for name, _, wanted in changes:
                links.apply(name, wanted)
    except (LinkError, PreStateError, OSError) as fault:
        module.fail_json(msg=str(fault))
    module.exit_json(changed=bool(changes), diff=shown, devices=sorted(wanted_by_device))


if __name__ == "__main__":
    main()

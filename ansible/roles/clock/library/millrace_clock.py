"""Ansible module: time services of a host, and its clock offset. Nothing is changed."""

import subprocess

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.millrace_clock import measured

DOCUMENTATION = r"""
module: millrace_clock
short_description: What keeps the time of a host, and how far it is off
description:
  - Nothing is changed.
options:
  shared: {description: Whether the host has the clock of the machine that it is a part of., type: bool, default: false}
author: [The Millrace authors]
"""

EXAMPLES = r"""
- name: See how far the clock is off
  millrace_clock:
"""

RETURN = r"""
clock:
  description: "C(source), and offset_s and bound_s in seconds, or null with a C(reason)."
  type: dict
  returned: always
before:
  description: "C(services) that keep the time and are installed -> whether each runs now and after a boot."
  type: dict
  returned: always
"""

PACKAGES = ("chrony", "systemd-timesyncd", "ntpsec")
"""Each has a service of its name."""


def said(*command):
    """Return the output of a program; empty if the program is missing."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=20).stdout.strip()
    except FileNotFoundError:
        return ""


def main():
    """Run as Ansible runs modules."""
    module = AnsibleModule(argument_spec={"shared": {"type": "bool", "default": False}}, supports_check_mode=True)
    services = {
        name: {
            "active": said("systemctl", "is-active", name) == "active",
            "enabled": said("systemctl", "is-enabled", name) == "enabled",
        }
        for name in PACKAGES
        if said("dpkg-query", "--show", "--showformat=${db:Status-Status}", name) == "installed"
    }
    before = {"services": services}
    module.exit_json(changed=False, clock=measured(module.params["shared"]), before=before)


if __name__ == "__main__":
    main()

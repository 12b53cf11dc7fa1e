"""Ansible module: a peer on this host, to which other hosts measure their links."""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.millrace_probe import start_peer, stop_peer

DOCUMENTATION = r"""
module: millrace_peer
short_description: A peer on this host, to which other hosts measure their links
description:
  - A process that listens until it is told to end, and ten minutes at most. Nothing on the host is changed.
options:
  address: {description: Where it listens., type: str, required: true}
  token: {description: What a connection must begin with., type: str, required: true}
  port: {description: Of the peer that is to end; none starts one., type: int}
author: [The Millrace authors]
"""

EXAMPLES = r"""
- name: Let others measure
  millrace_peer:
    address: 10.0.0.2
    token: "{{ lookup('ansible.builtin.password', '/dev/null', chars=['hexdigits']) }}"
"""

RETURN = r"""
port: {description: Where it listens., type: int, returned: when one was started}
"""


def main():
    """Run as Ansible runs modules."""
    module = AnsibleModule(
        argument_spec={
            "address": {"type": "str", "required": True},
            "token": {"type": "str", "required": True, "no_log": True},
            "port": {"type": "int"},
        },
        supports_check_mode=True,
    )
    asked = module.params
    if asked["port"]:
        stop_peer(asked["address"], asked["port"], asked["token"])
        module.exit_json(changed=False)
    try:
        port = start_peer(asked["address"], asked["token"])
    except OSError as fault:
        module.fail_json(msg=f"millrace_address: {asked['address']}: {fault.strerror}")
    module.exit_json(changed=False, port=port)


if __name__ == "__main__":
    main()

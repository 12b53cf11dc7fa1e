"""Ansible module: report which campaign uses a host. Nothing is changed."""

import fcntl
import os
import re
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: millrace_lease
short_description: Report which campaign uses a host
description:
  - A campaign locks the file C(.lock) of the run folder on every one of its nodes, and leaves its name there. The
    kernel releases the lock when the campaign's process on the host ends, however it ends.
options:
  work: {description: Run folder of the agents., type: path, required: true}
author: [The Millrace authors]
"""

EXAMPLES = r"""
- name: Find out whether a campaign uses the host
  millrace_lease:
    work: /var/lib/millrace/work
"""

RETURN = r"""
holder: {description: "The campaign that uses the host; empty when it is free.", type: str, returned: always}
"""

LOCK = ".lock"
NAMELESS = "a campaign that did not leave its name"


def holder(work):
    """Return a description of the campaign that holds the lock of this run folder; empty if none does."""
    # The folder belongs to the user of the agents, who could have put anything there.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(work / LOCK, flags)
    except FileNotFoundError:
        return ""
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        _, _, name = os.pread(handle, 4096, 0).decode(errors="replace").partition("\n")
        return re.sub(r"[^ -~]+", " ", name).strip() or NAMELESS
    finally:
        os.close(handle)
    return ""


def main():
    """Run as Ansible runs modules."""
    module = AnsibleModule(argument_spec={"work": {"type": "path", "required": True}}, supports_check_mode=True)
    work = Path(module.params["work"])
    try:
        found = holder(work)
    except OSError as fault:
        module.fail_json(msg=f"{work / LOCK}: whether a campaign uses this host cannot be read: {fault.strerror}")
    module.exit_json(changed=False, holder=found)


if __name__ == "__main__":
    main()

"""Ansible module: check whether a host supports the requested settings. Nothing is changed."""

import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.millrace_cpu import REQUESTED, CpuError, CpuProgram, found_before
from ansible.module_utils.millrace_limits import MIB, LimitError, holder
from ansible.module_utils.millrace_links import refusals
from ansible.module_utils.millrace_pre_state import PreState, PreStateError, boot_id

DOCUMENTATION = r"""
module: millrace_preflight
short_description: Check whether a host supports the requested settings
description:
  - Nothing is changed. Every impossible setting is reported, with the possible values.
options:
  folder: {description: Folder of C(pre_state.json)., type: path, required: true}
  archive: {description: The program that reads and sets CPUs., type: str, required: true}
  user: {description: User that agents run as., type: str, required: true}
  service_manager: {description: Service manager., type: str, required: true}
  is_machine: {description: Whether its links and limits are set from inside., type: bool, default: true}
  cpu: {description: Requested CPU settings., type: dict, default: {}}
  cpu_share: {description: "CPU time of agents, in cores.", type: float}
  memory_mb: {description: Memory of agents in units of 1024**2 bytes., type: int}
  links: {description: "Links to other hosts, with their addresses.", type: list, elements: dict, default: []}
  root: {description: Replaces V(/)., type: path, default: /}
author: [The Millrace authors]
"""

EXAMPLES = r"""
- name: Check whether the governor is available
  millrace_preflight:
    folder: "{{ millrace_state }}"
    archive: "{{ lookup('millrace_archive') }}"
    user: "{{ millrace_user }}"
    service_manager: none
    cpu: {governor: performance}
"""

RETURN = r"""
refused: {description: "Impossible settings, a sentence each.", type: list, elements: str, returned: always}
"""


def cpu_refusals(asked, kept, tmpdir):
    """Return the impossible CPU settings."""
    try:
        program = CpuProgram(asked["archive"], tmpdir, asked["root"])
        answer = program.ask("plan", requested=asked["cpu"], before=found_before(kept))
        return [f"millrace_{refusal['message']}" for refusal in answer["refused"]]
    except CpuError as fault:
        return [str(fault)]


def limit_refusals(asked, root):
    """Return the impossible limits."""
    requested = {"cpu": asked["cpu_share"], "memory": asked["memory_mb"]}
    faults = []
    cores = asked["cpu"].get("cores") or os.cpu_count()
    if requested["cpu"] is not None and not 0.01 <= requested["cpu"] <= cores:
        faults.append(f"millrace_cpu_share: {requested['cpu']:g}; possible: 0.01 to {cores}")
    ram = next(int(line.split()[1]) for line in (root / "proc/meminfo").read_text().splitlines() if "MemTotal" in line)
    if requested["memory"] is not None and not 1 <= requested["memory"] <= ram * 1024 // MIB:
        faults.append(f"millrace_memory_mb: {requested['memory']}; possible: 1 to {ram * 1024 // MIB}")
    return faults or holder(root, asked["user"], asked["service_manager"]).refusals(requested)


def refused(asked, tmpdir):
    """Return all impossible settings, a sentence each."""
    root = Path(asked["root"])
    try:
        kept = PreState(asked["folder"], boot_id(root))
        kept.sections()
    except (PreStateError, OSError) as fault:
        return [str(fault)]
    faults = cpu_refusals(asked, kept, tmpdir)
    if asked["service_manager"] == "systemd" and not (root / "run/systemd/system").is_dir():
        faults.append("millrace_service_manager: systemd does not run this host; possible: none")
    elif asked["is_machine"]:
        try:
            faults += limit_refusals(asked, root)
        except (LimitError, OSError) as fault:
            faults.append(str(fault))
    if not asked["is_machine"]:
        faults += [
            f"millrace_{name}: {asked[name]:g}; possible: none, as this host's limits are those of its millrace_emulate"
            for name in ("cpu_share", "memory_mb")
            if asked[name] is not None
        ]
    if asked["is_machine"] and asked["links"]:
        faults += [f"millrace_links: {fault}" for fault in refusals(asked["links"])]
    return faults


def main():
    """Run as Ansible runs modules."""
    module = AnsibleModule(
        argument_spec={
            **REQUESTED,
            "links": {"type": "list", "elements": "dict", "default": []},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    module.exit_json(changed=False, refused=refused(module.params, module.tmpdir))


if __name__ == "__main__":
    main()

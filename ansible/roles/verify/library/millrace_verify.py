"""Ansible module: requested and measured CPUs, limits and clock of this host."""

import json
import subprocess
import sys
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.millrace_clock import measured
from ansible.module_utils.millrace_cpu import REQUESTED, CpuError, CpuProgram, found_before
from ansible.module_utils.millrace_limits import MIB, LimitError, holder
from ansible.module_utils.millrace_pre_state import PreState, PreStateError, boot_id
from ansible.module_utils.millrace_probe import is_near, nearest

DOCUMENTATION = r"""
module: millrace_verify
short_description: Requested and measured CPUs, limits and clock of this host
description:
  - Nothing is changed.
options:
  folder: {description: Folder of C(pre_state.json)., type: path, required: true}
  archive: {description: Archive of the program agents.cpu., type: str, required: true}
  user: {description: The user that agents run as., type: str, required: true}
  service_manager: {description: Service manager., type: str, required: true}
  is_machine: {description: Whether it has limits and a clock of its own., type: bool, default: true}
  cpu: {description: Requested CPU settings., type: dict, default: {}}
  cpu_share: {description: "CPU time of agents, in cores.", type: float}
  memory_mb: {description: Memory of agents in units of 1024**2 bytes., type: int}
  share_tolerance: {description: Relative tolerance of the CPU time., type: float, required: true}
  offset_ms: {description: Largest allowed clock offset in ms., type: float, required: true}
author: [The Millrace authors]
"""

EXAMPLES = r"""
- name: Check whether two cores are online
  millrace_verify:
    folder: "{{ millrace_state }}"
    archive: "{{ lookup('millrace_archive') }}"
    user: "{{ millrace_user }}"
    service_manager: systemd
    cpu: {cores: 2}
    share_tolerance: 0.05
    offset_ms: 10
"""

RETURN = r"""
checks: {description: "what, asked, got, unit, ok, reason.", type: list, elements: dict, returned: always}
"""

BURN = """
import json, os, sys, time
from pathlib import Path

def limits():
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, kinds, path = line.split(":", 2)
        if kinds and "memory" not in kinds.split(","):
            continue
        name = "memory.limit_in_bytes" if kinds else "memory.max"
        for words in mounts:
            if words[2] == ("cgroup" if kinds else "cgroup2") and (not kinds or "memory" in words[3].split(",")):
                top = Path(words[1])
                folder = top / path.lstrip("/")
                while folder != top.parent:
                    if (folder / name).is_file():
                        value = (folder / name).read_text().strip()
                        if value != "max":
                            yield int(value)
                    folder = folder.parent

burners, seconds = int(sys.argv[1]), float(sys.argv[2])
for entrance in sys.argv[3:]:
    Path(entrance).write_text(str(os.getpid()))
start = time.monotonic()
for _ in range(burners):
    if os.fork() == 0:
        while time.monotonic() - start < seconds:
            pass
        os._exit(0)
for _ in range(burners):
    os.wait()
used = os.times()
wall = time.monotonic() - start
used_s = used.children_user + used.children_system
print(json.dumps({"cores": used_s / wall, "memory": min(limits(), default=None)}))
"""
"""Program run inside the limits: it uses all available CPU time, and prints this and its memory limit."""

BURN_S = 1.0


def limit_checks(asked):
    """Yield the checks of the limits, measured from inside."""
    requested = {"cpu": asked["cpu_share"], "memory": asked["memory_mb"]}
    if not any(requested.values()):
        return
    held_by = holder(Path("/"), asked["user"], asked["service_manager"])
    burners = int(asked["cpu_share"] or 0) + 1

    def inside():
        command = [sys.executable, "-c", BURN, str(burners), str(BURN_S), *held_by.entrances(requested)]
        done = subprocess.run(
            [*held_by.enter, *command], capture_output=True, text=True, check=False, timeout=BURN_S * 60
        )
        if done.returncode:
            raise LimitError(f"nothing can be run inside the limits: {done.stderr.strip()[-500:]}")
        return json.loads(done.stdout)

    if requested["cpu"]:
        share, tolerance = requested["cpu"], asked["share_tolerance"]
        got = nearest(lambda: inside()["cores"], share, tolerance)
        yield check("cpu", share, got, "cores", is_near(got, share, tolerance))
    if requested["memory"]:
        limit = inside()["memory"]
        got = limit and limit / MIB
        yield check(
            "memory", requested["memory"], got, "MiB", got == requested["memory"], "" if got else "it is not limited"
        )


def clock_check(asked):
    """Return the check of the clock offset."""
    clock = measured(shared=not asked["is_machine"])
    if clock["source"] is None and asked["service_manager"] == "none":
        # A container shares the clock of its machine.
        return []
    got = None if clock["offset_s"] is None else abs(clock["offset_s"]) * 1000
    is_ok = got is not None and got <= asked["offset_ms"]
    return [check("clock offset", asked["offset_ms"], got, "ms", is_ok, clock["reason"])]


def cpu_checks(asked, tmpdir):
    """Return the checks of cores and clocks, from the program `agents.cpu`."""
    before = found_before(PreState(asked["folder"], boot_id()))
    answer = CpuProgram(asked["archive"], tmpdir).ask("verify", requested=asked["cpu"], before=before)
    return [{**found, "ok": found["ok"] is not False, "unit": found["unit"] or None} for found in answer["checks"]]


def check(what, asked, got, unit, ok, reason=""):
    """Return a check."""
    return {"what": what, "asked": asked, "got": got, "unit": unit, "ok": ok, "reason": reason}


def main():
    """Run as Ansible runs modules."""
    module = AnsibleModule(
        argument_spec={
            **REQUESTED,
            "share_tolerance": {"type": "float", "required": True},
            "offset_ms": {"type": "float", "required": True},
        },
        supports_check_mode=True,
    )
    asked = module.params
    try:
        checks = cpu_checks(asked, module.tmpdir)
        checks += limit_checks(asked) if asked["is_machine"] else []
        checks += clock_check(asked)
    except (CpuError, LimitError, PreStateError, OSError) as fault:
        module.fail_json(msg=str(fault))
    module.exit_json(changed=False, checks=checks)


if __name__ == "__main__":
    main()

"""Ansible module, for the controller: facts of a host, stored beside the inventory and replaced when they differ."""

import json
import os
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: millrace_facts_file
short_description: Facts of a host, kept beside the inventory while they say the same
description:
  - Measured values differ from one time to the next. The file stays as it is until better ones are measured.
options:
  path: {description: The file., type: path, required: true}
  facts: {description: What was gathered., type: dict, required: true}
author: [The Millrace authors]
"""

EXAMPLES = r"""
- name: Keep the facts
  millrace_facts_file:
    path: inventory/facts/n1.json
    facts: {gathered_at: "2026-01-01T00:00:00+00:00", cores: 4}
  delegate_to: localhost
"""

RETURN = r"""
path: {description: The file., type: str, returned: always}
"""

MEASURED = ("measured_flops_per_cycle", "measured_ghz")
ERRORS = ("measured_flops_error", "ghz_error")
NEAR = 0.1
"""Tolerance of a measured value. Load on a host lowers a measurement and never raises it: lower values are ignored."""


def is_same(before, after):
    """Return whether facts are equal, apart from measurement noise."""
    if before.keys() != after.keys():
        return False
    measured = {"gathered_at", *MEASURED, *ERRORS, *(["ghz"] if after.get("ghz_source") == "measured" else [])}
    if any(value != before[key] for key, value in after.items() if key not in measured):
        return False
    return not any(is_better(before[key], after[key]) for key in MEASURED if key in after)


def is_better(before, after):
    """Return whether a measured value exceeds the previous one by more than noise."""
    return after is not None and (before is None or after > before * (1 + NEAR))


def main():
    """Run as Ansible runs modules."""
    module = AnsibleModule(
        argument_spec={"path": {"type": "path", "required": True}, "facts": {"type": "dict", "required": True}},
        supports_check_mode=True,
    )
    path, facts = Path(module.params["path"]), module.params["facts"]
    try:
        before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError:
        before = {}
    changed = not is_same(before, facts)
    if changed and not module.check_mode:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, partial = tempfile.mkstemp(dir=str(path.parent), prefix=f".{path.name}-")
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text(facts))
            Path(partial).chmod(0o644)
            Path(partial).replace(path)
        except OSError as fault:
            module.fail_json(msg=f"{fault.filename or path}: {fault.strerror}")
    diff = {"before": text(before), "after": text(facts if changed else before)}
    module.exit_json(changed=changed, path=str(path), diff=diff)


def text(facts):
    """Return the text of facts."""
    return json.dumps(facts, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    main()

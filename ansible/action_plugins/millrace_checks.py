"""Ansible action: gather the measurements of all hosts of a play on the controller and write them to a file.

Arguments:
    file: path of the JSON file: `{ok, checks: [{node, to, what, asked, got, unit, ok}]}`; empty: no file.
"""

import json
from pathlib import Path

from ansible.plugins.action import ActionBase

KEYS = ("node", "to", "what", "asked", "got", "unit", "ok")


def described(check):
    """Return a check as text."""
    to = f" to {check['to']}" if check["to"] else ""
    unit = f" {check['unit']}" if check["unit"] else ""
    got = f"{check['got']:.4g}" if isinstance(check["got"], float) else check["got"]
    reason = f" ({check['reason']})" if check.get("reason") else ""
    return f"{check['node']}: {check['what']}{to}: asked {check['asked']}{unit}, got {got}{unit}{reason}"


def gathered(hosts, variables):
    """Yield the checks of the hosts, in their order."""
    for host in hosts:
        for task in ("verify_host", "verify_links"):
            for check in variables[host].get(task, {}).get("checks", []):
                complete = {"node": host, "to": None, **check}
                yield {**complete, "says": described(complete)}


class ActionModule(ActionBase):
    """The action."""

    def run(self, tmp=None, task_vars=None):
        """Gather, write, and return the checks."""
        result = super().run(tmp, task_vars)
        checks = list(gathered(task_vars["ansible_play_hosts"], task_vars["hostvars"]))
        document = {"ok": all(check["ok"] for check in checks), "checks": [{k: c[k] for k in KEYS} for c in checks]}
        if self._task.args["file"]:
            file = Path(self._task.args["file"])
            file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        result.update(changed=False, checks=checks)
        return result

"""Ansible action: check whether a host supports the settings of the inventory. Nothing is changed.

Variables are checked here on the controller, against the declarations of all roles. Then the module of the same name
checks the host. All faults are reported at once.
"""

import json
from functools import cache
from pathlib import Path

import yaml
from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import lookup_loader

ROLES = Path(__file__).resolve().parents[1] / "roles"
PREFIX = "millrace_"
METERS = "millrace_meters"


@cache
def declared():
    """Return every variable that a role declares, with its specification."""
    options = {}
    for path in sorted(ROLES.glob("*/meta/argument_specs.yml")):
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values():
            options.update(entry.get("options", {}))
    return options


def faults_of(variables):
    """Return the faults of a host's variables with our prefix, a sentence each."""
    try:
        from agents.power.settings import PowerSettings
        from inventory.ansible_hosts import names
        from inventory.documents import Document
        from inventory.errors import InputError, nearest
    except ImportError as fault:
        raise AnsibleError(f"run Ansible from the environment that Millrace is installed in: {fault}") from fault
    faults = [f"{name}: unknown variable{nearest(name, names())}" for name in variables if name not in names()]
    asked = {name: value for name, value in variables.items() if name in declared() and value is not None}
    # Required variables are checked by the role that needs them.
    options = {name: {**declared()[name], "required": False} for name in asked}
    faults += ArgumentSpecValidator(options).validate(asked).error_messages
    if not faults and METERS in asked:
        # Argument specifications have no ranges, and agents would reject the file only during the campaign.
        said = Document("", json.loads(json.dumps({METERS: asked[METERS]})), {})
        try:
            said.convert(PowerSettings, (METERS,))
        except InputError as fault:
            faults.append(str(fault).removeprefix(": "))
    return faults


class ActionModule(ActionBase):
    """The action."""

    def run(self, tmp=None, task_vars=None):
        """Check the variables, then the host."""
        result = super().run(tmp, task_vars)
        host = task_vars["inventory_hostname"]
        ours = {name: value for name, value in task_vars.items() if name.startswith(PREFIX)}
        faults = faults_of({name: self._templar.template(value) for name, value in ours.items()})
        links = []
        try:
            links = lookup_loader.get("millrace_links", loader=self._loader, templar=self._templar).run([], task_vars)[
                0
            ]
        except AnsibleError as fault:
            faults.append(str(fault))
        if not faults:
            found = self._execute_module(
                module_name="millrace_preflight", module_args={**self._task.args, "links": links}, task_vars=task_vars
            )
            if "refused" not in found:
                return found
            faults = found["refused"]
        result["changed"] = False
        if faults:
            result["failed"] = True
            result["refused"] = faults
            result["msg"] = "; ".join(f"{host}: {fault}" for fault in faults)
        return result

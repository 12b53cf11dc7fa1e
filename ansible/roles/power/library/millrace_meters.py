"""Ansible module: the operator's settings of a host's energy meters, in the file that agents read."""

import contextlib
import os
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.millrace_pre_state import PreState, PreStateError, boot_id

DOCUMENTATION = r"""
module: millrace_meters
short_description: Settings of a host's energy meters
description:
  - Writes C(/etc/millrace/power.yaml), which agents read whenever they open meters.
  - The original file is saved in C(pre_state.json) before it is changed.
options:
  folder: {description: Folder of C(pre_state.json)., type: path, required: true}
  content: {description: Text of the file; without it the original file is restored., type: str}
  state:
    description: V(absent) restores the original file.
    choices: [present, absent]
    default: present
    type: str
  root: {description: Replaces V(/)., type: path, default: /}
author: [The Millrace authors]
"""

EXAMPLES = r"""
- name: Read the outlet before all other meters
  millrace_meters:
    folder: /var/lib/millrace
    content: |
      prefer: [external]
      external: {command: [python3, -P, -m, agents.power.programs.ipmi_dcmi]}
"""

RETURN = r"""
path: {description: The file., type: str, returned: always}
"""

SECTION = "meters"
SETTINGS = "etc/millrace/power.yaml"


class Settings:
    """The current file; the original one is saved before it is changed."""

    def __init__(self, root, kept):
        self._root, self._path, self._kept = root, root / SETTINGS, kept

    def text(self):
        """Return the text of the file; None without one."""
        try:
            return self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def found(self):
        """Return the original text."""
        section = self._kept.section(SECTION)
        return section["before"]["text"] if section else self.text()

    def write(self, text):
        """Save the original text, then write the file."""
        missing = [str(folder) for folder in Path(SETTINGS).parents if not (self._root / folder).exists()]
        self._kept.save(SECTION, {"text": self.text(), "missing": missing})
        self._put(text)

    def restore(self):
        """Restore the original file, and remove folders that were missing before."""
        section = self._kept.section(SECTION)
        if section is None:
            return
        if section["before"]["text"] is None:
            self._path.unlink(missing_ok=True)
        else:
            self._put(section["before"]["text"])
        for folder in section["before"]["missing"]:
            with contextlib.suppress(OSError):  # other files may have been added since
                (self._root / folder).rmdir()
        self._kept.drop(SECTION)

    def _put(self, text):
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=str(self._path.parent), prefix=".power-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
            Path(name).chmod(0o644)
            Path(name).replace(self._path)
        except BaseException:
            Path(name).unlink()
            raise


def main():
    """Run as Ansible runs modules."""
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            "content": {"type": "str"},
            "state": {"choices": ["present", "absent"], "default": "present"},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    asked = module.params
    content = asked["content"] if asked["state"] == "present" else None
    try:
        settings = Settings(Path(asked["root"]), PreState(asked["folder"], boot_id()))
        before = settings.text()
        after = content or settings.found()
        if not module.check_mode:
            if not content:
                settings.restore()
            elif before != after:
                settings.write(content)
    except (PreStateError, OSError, UnicodeDecodeError) as fault:
        module.fail_json(msg=str(fault))
    headed = {"before_header": f"/{SETTINGS}", "after_header": f"/{SETTINGS}"}
    diff = {**headed, "before": before or "", "after": after or ""}
    module.exit_json(changed=before != after, path=f"/{SETTINGS}", diff=diff)


if __name__ == "__main__":
    main()

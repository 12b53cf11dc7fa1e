"""Ansible lookup: the program `agents.cpu` as one zip archive, for a host on which nothing is installed yet."""

import base64
import io
import zipfile
from pathlib import Path

from ansible.plugins.lookup import LookupBase

DOCUMENTATION = r"""
name: millrace_archive
short_description: The program that reads and sets a host's CPUs, as a zip archive in base64
description:
  - The program needs only the standard library. The archive is built in memory on the controller.
author: [The Millrace authors]
options: {}
"""

EXAMPLES = r"""
- name: Show its size
  ansible.builtin.debug:
    msg: "{{ lookup('millrace_archive') | length }}"
"""

RETURN = r"""
_raw: {description: "One string.", type: list, elements: str}
"""

PARTS = (
    "agents/__init__.py",
    "agents/host_files.py",
    "agents/cpu/*.py",
    "inventory/__init__.py",
    "inventory/atomic_files.py",
    "inventory/errors.py",
    "inventory/foreign.py",
    "inventory/own_files.py",
)

CHECKOUT = Path(__file__).resolve().parents[2]


def archive():
    """Return the archive; equal sources give equal archives."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for pattern in PARTS:
            for path in sorted(CHECKOUT.glob(pattern)):
                archive.writestr(zipfile.ZipInfo(str(path.relative_to(CHECKOUT))), path.read_bytes())
    return buffer.getvalue()


class LookupModule(LookupBase):
    """The lookup."""

    def run(self, terms, variables=None, **kwargs):
        """Return the archive in base64."""
        return [base64.b64encode(archive()).decode()]

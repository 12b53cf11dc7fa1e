"""What the modules are told that look at all of a host at once: what it is asked to be, its links left out."""

from ansible.module_utils.millrace_cpu import WISH

ASKED = {
    "folder": {"type": "path", "required": True},
    "archive": {"type": "str", "required": True},
    "user": {"type": "str", "required": True},
    "service_manager": {"type": "str", "required": True},
    "is_machine": {"type": "bool", "default": True},
    "cpu": {"type": "dict", "default": {}, "options": WISH},
    "cpu_share": {"type": "float"},
    "memory_mb": {"type": "int"},
}
"""Arguments of a module; a host that is no machine has its limits and its links from outside."""

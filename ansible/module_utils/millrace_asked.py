"""Arguments of modules that check a whole host: its requested settings without links."""

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
"""Arguments of a module; the limits and links of a host that is not a machine are set from the outside."""

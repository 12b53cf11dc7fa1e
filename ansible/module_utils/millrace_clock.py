"""Clock offset of a host, as measured by chrony."""

import subprocess

FIELDS = 14
"""Fields of `chronyc -c tracking`; see chronyc(1)."""


def measured(shared=False):
    """Return `{source, offset_s, bound_s, reason}`: seconds, None when unknown.

    The bound is chrony's own: the true time is within it if its servers are correct.

    Args:
        shared: whether the host shares the clock of its machine with the other nodes.
    """
    if shared:
        return {
            "source": "shared",
            "offset_s": 0.0,
            "bound_s": 0.0,
            "reason": "one clock for all nodes of this machine",
        }
    try:
        done = subprocess.run(["chronyc", "-c", "tracking"], capture_output=True, text=True, check=False, timeout=20)
    except FileNotFoundError:
        return _unknown("there is no chronyc")
    if done.returncode:
        return _unknown((done.stdout + done.stderr).strip() or "chronyc gave no answer")
    return from_tracking(done.stdout)


def from_tracking(line):
    """Return the same from a line of `chronyc -c tracking`."""
    fields = line.strip().split(",")
    if len(fields) != FIELDS:
        return _unknown(f"chronyc said {line.strip()!r}")
    if fields[13] == "Not synchronised":
        return _unknown("chrony has no time yet: none of its servers has answered")
    offset, delay, dispersion = float(fields[4]), float(fields[10]), float(fields[11])
    return {"source": "chrony", "offset_s": offset, "bound_s": abs(offset) + dispersion + delay / 2, "reason": ""}


def _unknown(reason):
    return {"source": None, "offset_s": None, "bound_s": None, "reason": reason}

"""Installed environment of a node: `venv` is a link to `venv-DIGEST`, which contains a marker file when complete."""

LINK, PREFIX, DONE = "venv", "venv-", "millrace-complete"


def installed(home):
    """Return the digest of the complete environment in use, or None."""
    try:
        name = str((home / LINK).readlink())
    except OSError:
        return None
    return name[len(PREFIX) :] if name.startswith(PREFIX) and (home / name / DONE).is_file() else None

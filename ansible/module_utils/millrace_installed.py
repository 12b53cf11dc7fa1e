"""Which environment is installed on a node: `venv` is a link to `venv-DIGEST`, with a mark in it when complete."""

LINK, PREFIX, DONE = "venv", "venv-", "millrace-complete"


def installed(home):
    """The digest of the environment that is in use and complete, or None."""
    try:
        name = str((home / LINK).readlink())
    except OSError:
        return None
    return name[len(PREFIX) :] if name.startswith(PREFIX) and (home / name / DONE).is_file() else None

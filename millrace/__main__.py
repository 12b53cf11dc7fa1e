"""The program `millrace`: check that no other package hides one of Millrace's own, then run the command line.

Signal handlers are installed before anything else is imported: imports take ten times as long as the start of Python,
and Ctrl-C must not print a traceback meanwhile. `./run setup` has the program started with signals blocked, so that
they cannot interrupt Python's own start either.
"""

import sys

OWN = ("agents", "analysis", "campaign", "controller", "engines", "inventory", "scheduler", "workloads")


def main() -> None:
    """Run the command line and exit with its status (0, 1, 2, 3 or 130).

    The status is also 3 where another package hides one of Millrace's own.
    """
    try:
        from pathlib import Path

        root = Path(__file__).resolve().parents[1]
        for name in OWN:
            found = _location(name)
            if found is not None and Path(found).resolve() != root / name:
                sys.stderr.write(_message(name, found, str(root)))
                sys.exit(3)
        from controller.host.signals import (
            ignore_interrupts_for_good,
            interrupted_once,
            leave_when_interrupted,
            unblock_interrupts,
        )

        leave_when_interrupted()
        unblock_interrupts()
        import atexit

        # Called last of all: then Python gives signals back to the system, which would end it with another status.
        atexit.register(ignore_interrupts_for_good)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    from campaign.commands.main import run
    from campaign.display.terminal import open_standard_streams

    open_standard_streams()
    with interrupted_once():
        status = run(sys.argv[1:])
    sys.exit(status)


def _location(package: str) -> str | None:
    """Return the folder or file from which `package` would be imported, without importing it."""
    for finder in sys.meta_path:
        spec = finder.find_spec(package, None)
        if spec is not None:
            folders = list(spec.submodule_search_locations or ())
            return folders[0] if folders else spec.origin
    return None


def _message(name: str, found: str, root: str) -> str:
    from importlib.metadata import packages_distributions

    owners = sorted(set(packages_distributions().get(name, ())) - {"millrace"})
    installed = f" (installed by {', '.join(owners)})" if owners else ""
    return (
        f"millrace: {found}{installed} hides Millrace's own package {name!r} in {root}: "
        "rename it, uninstall it, or take its folder out of PYTHONPATH\n"
    )


if __name__ == "__main__":
    main()

"""Entry point of the program `millrace`.

Signal handlers are installed before anything else is imported: imports take ten times as long as the start of Python,
and Ctrl-C must not print a traceback meanwhile.
"""

import sys


def main() -> None:
    """Run the command line and exit with its status (0, 1, 2, 3 or 130)."""
    try:
        from controller.host.signals import ignore_interrupts, interrupted_once, leave_when_interrupted

        leave_when_interrupted()
        import atexit

        # Called last of all: then Python gives signals back to the system, which would end it with another status.
        atexit.register(ignore_interrupts)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    from campaign.commands.main import run
    from campaign.display.standard_streams import open_standard_streams

    open_standard_streams()
    with interrupted_once():
        status = run(sys.argv[1:])
    sys.exit(status)

"""Write `cli.md`, the reference of the command line, from the commands themselves.

Run it after a change of a command's options or help: `.venv/bin/python docs/reference/make_cli.py`
"""

from pathlib import Path

import click
from click.testing import CliRunner

from campaign.commands.main import millrace

PAGE = Path(__file__).with_name("cli.md")
WIDTH = 110

HEAD = r"""# Command line

Written by `docs/reference/make_cli.py` from what `--help` says.

| exit status | meaning |
|---|---|
| 0 | done |
| 1 | a run failed; the message says where its log is |
| 2 | the input is wrong: file, line, key, value and the nearest valid choice are named, and nothing was started |
| 3 | this machine or cluster cannot do it; the message says what is missing |
| 130 | interrupted, in an orderly way |

With `--json`, standard output is one JSON document and nothing else; messages go to standard error. A traceback is
only shown with `--debug`. The options of `millrace` itself may also stand behind the command:
`millrace run demo --debug`. Standard output that cannot be written is an error (status 3, and the reason); progress
and messages that nobody takes are dropped, and change nothing.

State files and locks of a user's campaigns are in `$XDG_STATE_HOME/millrace/<machine id>`; without the variable in
`~/.local/state/millrace/<machine id>`, for root in `/var/lib/millrace/<machine id>`. They outlive the session: after
a logout a campaign that still runs refuses a second one on the same cluster, and `clean` finds what a killed one
left. A variable that names a folder of another user is ignored; a home folder that cannot be written is an error, and
the way out is to set the variable.

A shell completes commands, options and their values once its start-up file has the line for it, with `millrace` on the
`PATH` (`.venv/bin/millrace` of a checkout is not, before its environment is activated):

| shell | file | line |
|---|---|---|
| bash (4.4 or later) | `~/.bashrc` | `eval "$(_MILLRACE_COMPLETE=bash_source millrace)"` |
| zsh | `~/.zshrc`, after `compinit` | `eval "$(_MILLRACE_COMPLETE=zsh_source millrace)"` |
| fish | `~/.config/fish/completions/millrace.fish` | `_MILLRACE_COMPLETE=fish_source millrace \| source` |
"""


def page() -> str:
    """The whole page."""
    names = millrace.list_commands(click.Context(millrace))
    return "\n".join([HEAD, _section("millrace"), *(_section("millrace", name) for name in names)])


def _section(*words: str) -> str:
    said = CliRunner().invoke(millrace, [*words[1:], "--help"], prog_name="millrace", terminal_width=WIDTH).output
    lines = "\n".join(line.rstrip() for line in said.splitlines())
    return f"## {' '.join(words)}\n\n```text\n{lines}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

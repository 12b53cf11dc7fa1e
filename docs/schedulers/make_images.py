"""Draw `images/`, one placement per scheduler, from the files in `examples/`, by the command that its page shows.

Run it after a change of a scheduler, of pictures or of the examples: `.venv/bin/python docs/schedulers/make_images.py`
"""

from pathlib import Path

from click.testing import CliRunner

from campaign.commands.main import millrace
from scheduler.registry import computing_schedulers

HERE = Path(__file__).parent
EXAMPLES = HERE / "examples"
IMAGES = HERE / "images"

GROWN = ("default", "matrix", "pmod")
"""Schedulers whose subject is what runs already."""
SHARED = ("aniello-online", "isolation", "multitenant", "resource-aware", "t-storm")
"""Schedulers whose subject is several topologies."""


def command(name: str) -> str:
    """What a page tells the reader to type, in the folder of the examples."""
    words = ["millrace place", f"--cluster {'grown' if name in GROWN else 'cluster'}.yml", "--topology words.yml"]
    if name in SHARED:
        words.append("--topology clicks.yml")
    words.append(f"--traffic {'traffic-of-both' if name in SHARED else 'traffic'}.yml")
    if (EXAMPLES / f"{name}.yml").exists():
        words.append(f"--params-file {name}.yml")
    return " ".join([*words, f"--compare {name}", "--pictures images"])


def draw(name: str, folder: Path) -> Path:
    """Do what `command` says, into `folder`; returns the picture.

    Raises:
        RuntimeError: the command failed.
    """
    words = command(name).split()[1:]
    arguments = [str(EXAMPLES / word) if word.endswith(".yml") else word for word in words[:-1]]
    done = CliRunner().invoke(millrace, [*arguments, str(folder), "--json"])
    if done.exit_code:
        raise RuntimeError(f"{command(name)}: {done.output}")
    return folder / f"{name}.svg"


if __name__ == "__main__":
    for each in computing_schedulers():
        draw(each, IMAGES)

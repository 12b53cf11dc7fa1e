"""`python -P -m controller.ssh.node_lease_daemon WORK CAMPAIGN OWNER`: holds a node for one campaign.

Runs on the node. It holds the lock of the folder WORK, below which it makes a folder for the campaign, and does for the
controller what SFTP cannot. Requests and answers are JSON, one object per line, on standard input and output:

    -> {"version", "free_bytes"}              at once; or {"refused": reason}
    <- {"do": "beat"}                         every second; -> {}
    <- {"do": "list", "folder", "pattern"}    -> {"files": [[name, bytes, SHA-256], ...]}; none without a folder
    <- {"do": "sum", "file"}                  -> {"sha256"}, null without a file
    <- {"do": "place", "source", "target"}    a second name for a file; -> {}
    <- {"do": "remove", "folder"}             -> {}
    <- {"do": "free"}                         -> {"free_bytes"}
    <- {"do": "end", "mark"}                  ends processes with this environment entry; -> {"ended"}
    <- {"do": "leave"}                        it cleans up and exits

Paths are below the campaign's folder. A request that fails is answered by {"failed": reason}. What earlier campaigns
left, processes and folders, is removed at the start: they are over, or they would hold the lock. When the controller is
gone, because the input ends or no word has come for a while, all that runs here for it is ended, and the node is free.
The folder stays a little longer, for the same campaign may come back by another connection.
"""

import fcntl
import hashlib
import json
import os
import re
import select
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agents.protocol import SILENCE_S
from controller.host.process_identity import end, marked

WORK = "MILLRACE_WORK"
"""Environment variable of every process that a controller starts on a node: the node's folder for work."""

LOCK = ".lock"

WAIT_S = 25.0
"""How long a campaign waits for the keeper that it had here before its connection broke, or for one that is leaving."""

LINGER_S = 30.0
"""How long the folder stays for a campaign whose connection broke."""

_OURS = re.compile(r"campaign-[0-9a-f]{32}")
"""Names of campaigns' folders; nothing else in the folder for work is ever removed."""

_PIECE = 1024 * 1024

Answer = Mapping[str, Any]


class LeaseRefused(Exception):  # noqa: N818 - an answer
    """The node cannot be had; why."""


class Claim:
    """The lock of a node's folder for work."""

    def __init__(self, work: Path, campaign: str, owner: str) -> None:
        """Take it.

        Raises:
            Refused: another campaign has it, or the folder cannot be used.
        """
        try:
            work.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._handle = os.open(work / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as fault:
            raise LeaseRefused(f"{work} cannot be used: {fault.strerror}") from None
        until = time.monotonic() + WAIT_S
        while not self.take():
            holder, _, name = self._text().partition("\n")
            if holder not in {campaign, ""} or time.monotonic() > until:
                raise LeaseRefused(f"it is in use by {name or 'a campaign that did not leave its name'}")
            time.sleep(0.1)
        self._write(f"{campaign}\n{owner}")

    def take(self) -> bool:
        """Take the lock if nobody has it; return whether it is ours."""
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def leave(self) -> None:
        """Say that it will be free in a moment."""
        self._write("")

    def free(self) -> None:
        """Let others have it."""
        fcntl.flock(self._handle, fcntl.LOCK_UN)

    def _text(self) -> str:
        return os.pread(self._handle, 4096, 0).decode(errors="replace")

    def _write(self, text: str) -> None:
        os.truncate(self._handle, 0)
        os.pwrite(self._handle, text.encode(), 0)


class NodeLeaseDaemon:
    """Does what it is asked for, below the campaign's folder."""

    def __init__(self, folder: Path, mark: str) -> None:
        self._folder, self._mark = folder, mark
        self._work: Mapping[str, Callable[[Mapping[str, str]], Answer]] = {
            "beat": lambda _: {},
            "list": self._list,
            "sum": lambda asked: {"sha256": _sum(self._at(asked["file"]))},
            "place": self._place,
            "remove": self._remove,
            "free": lambda _: {"free_bytes": self.free_bytes},
            "end": lambda asked: {"ended": len(self.end(asked["mark"]))},
        }

    @property
    def free_bytes(self) -> int:
        """What an unprivileged process may still write."""
        return shutil.disk_usage(self._folder).free

    def answer(self, asked: Mapping[str, str]) -> Answer:
        """Do it."""
        try:
            return self._work[asked["do"]](asked)
        except (OSError, ValueError) as fault:
            return {"failed": str(fault)}

    def end(self, mark: str) -> list[int]:
        """End the processes with this entry in their environment, and what they start meanwhile."""
        ended: list[int] = []
        while found := [p for p in marked(mark.encode()) if p.pid not in ended]:
            end(found)
            ended += [process.pid for process in found]
        return ended

    def end_all(self) -> None:
        """End all that runs here for a controller."""
        self.end(self._mark)

    def remove_others(self) -> None:
        """Remove the folders of other campaigns."""
        for path in self._folder.parent.iterdir():
            if _OURS.fullmatch(path.name) and path != self._folder:
                shutil.rmtree(path, ignore_errors=True)

    def _at(self, path: str) -> Path:
        found = self._folder / path
        if ".." in found.parts or not found.is_relative_to(self._folder):
            raise ValueError(f"{path} is not below {self._folder}")
        return found

    def _list(self, asked: Mapping[str, str]) -> Answer:
        folder = self._at(asked["folder"])
        names = sorted(path for path in folder.glob(asked["pattern"]) if path.is_file()) if folder.is_dir() else []
        return {"files": [[path.name, path.stat().st_size, _sum(path)] for path in names]}

    def _place(self, asked: Mapping[str, str]) -> Answer:
        source, target = self._at(asked["source"]), self._at(asked["target"])
        target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            target.unlink()
        target.hardlink_to(source)
        return {}

    def _remove(self, asked: Mapping[str, str]) -> Answer:
        with suppress(FileNotFoundError):
            shutil.rmtree(self._at(asked["folder"]))
        return {}


def _sum(path: Path) -> str | None:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
    except FileNotFoundError:
        return None
    return digest.hexdigest()


def _say(answer: Answer) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def serve(keeper: NodeLeaseDaemon) -> bool:
    """Answer until the controller leaves; return whether it said so."""
    waiting = b""
    while select.select([0], [], [], SILENCE_S)[0]:
        piece = os.read(0, _PIECE)
        if not piece:
            return False
        *lines, waiting = (waiting + piece).split(b"\n")
        for asked in map(json.loads, lines):
            if asked["do"] == "leave":
                return True
            _say(keeper.answer(asked))
    return False


def main(work: str, campaign: str, owner: str) -> int:
    """Keep the node; return the exit status."""
    root = Path(work)
    folder = root / campaign
    try:
        claim = Claim(root, campaign, owner)
    except LeaseRefused as fault:
        _say({"refused": str(fault)})
        return 3
    keeper = NodeLeaseDaemon(folder, f"{WORK}={work}")
    keeper.end_all()
    keeper.remove_others()
    folder.mkdir(mode=0o700, exist_ok=True)
    left = False
    with suppress(BrokenPipeError):
        _say({"version": version("millrace"), "free_bytes": keeper.free_bytes})
        left = serve(keeper)
    claim.leave()
    keeper.end_all()
    if not left:
        claim.free()
        time.sleep(LINGER_S)
    if left or claim.take():
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

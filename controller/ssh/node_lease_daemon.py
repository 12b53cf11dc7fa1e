"""`python -P -m controller.ssh.node_lease_daemon WORK CAMPAIGN OWNER`: holds the lease of a node for one campaign.

Runs on the node. It locks the folder WORK, creates the campaign's folder in it, and performs operations that SFTP does
not have. Requests and replies are JSON, one object per line, on standard input and output:

    -> {"version", "free_bytes"}              at the start; or {"refused": reason, "in_use"}
    <- {"do": "beat"}                         every second; -> {}
    <- {"do": "list", "folder", "pattern"}    -> {"files": [[name, bytes, SHA-256], ...]}; none without a folder
    <- {"do": "sum", "file"}                  -> {"sha256"}, null without a file
    <- {"do": "place", "source", "target"}    hard link; -> {}
    <- {"do": "remove", "folder"}             -> {}
    <- {"do": "free"}                         -> {"free_bytes"}
    <- {"do": "end", "mark"}                  ends processes with this environment entry; -> {"ended"}
    <- {"do": "leave"}                        cleans up and exits

Paths are relative to the campaign's folder. The reply to a failed request is {"failed": reason}. Processes and folders
of earlier campaigns are removed at the start; these campaigns have ended, because the lock is free. When the input ends
or no request arrives for `SILENCE_S`, the controller is gone: its processes are ended and the lock is released. The
folder stays for `LINGER_S`, because the campaign may reconnect.
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
from agents.protocol.node_folders import WORK
from controller.host.process_identity import end_processes, marked

LOCK = ".lock"

WAIT_S = 25.0
"""Timeout for a campaign's own earlier daemon, whose connection broke, or for one that is exiting."""

PROBE_S = 0.5
"""Timeout for a playbook that tests the lock (`ansible/library/millrace_lease.py`), which holds it for that moment."""

LINGER_S = 30.0
"""Time for which the folder of a campaign is kept after its connection broke."""

_OURS = re.compile(r"campaign-[0-9a-f]{32}")
"""Names of campaigns' folders; nothing else in the work folder is ever removed."""

_PIECE = 1024 * 1024

Reply = Mapping[str, Any]


class LeaseRefused(Exception):  # noqa: N818 - an answer
    """The lease cannot be acquired; the message gives the reason."""

    in_use = False


class LeaseInUse(LeaseRefused):
    """Another campaign has it."""

    in_use = True


class WorkLock:
    """Lock of a node's work folder."""

    def __init__(self, work: Path, campaign: str, owner: str) -> None:
        """Acquire the lock.

        Raises:
            LeaseInUse: another campaign holds it.
            LeaseRefused: the folder cannot be used.
        """
        try:
            work.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._handle = os.open(work / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as fault:
            raise LeaseRefused(f"{work} cannot be used: {fault.strerror}") from None
        begun = time.monotonic()
        while not self.try_acquire():
            holder, _, name = self._text().partition("\n")
            if time.monotonic() - begun > (WAIT_S if holder in {campaign, ""} else PROBE_S):
                raise LeaseInUse(f"it is in use by {name or 'a campaign that did not leave its name'}")
            time.sleep(0.1)
        self._write(f"{campaign}\n{owner}")

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free; return whether it is held now."""
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def announce_release(self) -> None:
        """Announce in the lock file that the lock is about to be released."""
        self._write("")

    def release(self) -> None:
        """Release the lock."""
        fcntl.flock(self._handle, fcntl.LOCK_UN)

    def _text(self) -> str:
        return os.pread(self._handle, 4096, 0).decode(errors="replace")

    def _write(self, text: str) -> None:
        os.truncate(self._handle, 0)
        os.pwrite(self._handle, text.encode(), 0)


class NodeLeaseDaemon:
    """Handler of requests, which operate below the campaign's folder."""

    def __init__(self, folder: Path, mark: str) -> None:
        self._folder, self._mark = folder, mark
        self._handlers: Mapping[str, Callable[[Mapping[str, str]], Reply]] = {
            "beat": lambda _: {},
            "list": self._list,
            "sum": lambda request: {"sha256": _sum(self._at(request["file"]))},
            "place": self._place,
            "remove": self._remove,
            "free": lambda _: {"free_bytes": self.free_bytes},
            "end": lambda request: {"ended": len(self.end(request["mark"]))},
        }

    @property
    def free_bytes(self) -> int:
        """Disk space available to unprivileged processes."""
        return shutil.disk_usage(self._folder).free

    def handle(self, request: Mapping[str, str]) -> Reply:
        """Handle a request and return the reply."""
        try:
            return self._handlers[request["do"]](request)
        except (OSError, ValueError) as fault:
            return {"failed": str(fault)}

    def end(self, mark: str) -> list[int]:
        """End the processes with this entry in their environment, and processes that they start meanwhile."""
        ended: list[int] = []
        while left := [p for p in marked(mark.encode()) if p.pid not in ended]:
            end_processes(left)
            ended += [process.pid for process in left]
        return ended

    def end_all(self) -> None:
        """End all processes that a controller has started here."""
        self.end(self._mark)

    def remove_others(self) -> None:
        """Remove the folders of other campaigns."""
        for path in self._folder.parent.iterdir():
            if _OURS.fullmatch(path.name) and path != self._folder:
                shutil.rmtree(path, ignore_errors=True)

    def _at(self, path: str) -> Path:
        target = self._folder / path
        if ".." in target.parts or not target.is_relative_to(self._folder):
            raise ValueError(f"{path} is not below {self._folder}")
        return target

    def _list(self, request: Mapping[str, str]) -> Reply:
        folder = self._at(request["folder"])
        names = sorted(path for path in folder.glob(request["pattern"]) if path.is_file()) if folder.is_dir() else []
        return {"files": [[path.name, path.stat().st_size, _sum(path)] for path in names]}

    def _place(self, request: Mapping[str, str]) -> Reply:
        source, target = self._at(request["source"]), self._at(request["target"])
        target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            target.unlink()
        target.hardlink_to(source)
        return {}

    def _remove(self, request: Mapping[str, str]) -> Reply:
        with suppress(FileNotFoundError):
            shutil.rmtree(self._at(request["folder"]))
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


def _send(reply: Reply) -> None:
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


def serve_lease(daemon: NodeLeaseDaemon) -> bool:
    """Handle requests until the controller leaves or is gone; return whether it sent `leave`."""
    waiting = b""
    while select.select([0], [], [], SILENCE_S)[0]:
        piece = os.read(0, _PIECE)
        if not piece:
            return False
        *lines, waiting = (waiting + piece).split(b"\n")
        for request in map(json.loads, lines):
            if request["do"] == "leave":
                return True
            _send(daemon.handle(request))
    return False


def main(work: str, campaign: str, owner: str) -> int:
    """Hold the lease; return the exit status."""
    root = Path(work)
    folder = root / campaign
    try:
        lock = WorkLock(root, campaign, owner)
    except LeaseRefused as fault:
        _send({"refused": str(fault), "in_use": fault.in_use})
        return 3
    daemon = NodeLeaseDaemon(folder, f"{WORK}={work}")
    daemon.end_all()
    daemon.remove_others()
    folder.mkdir(mode=0o700, exist_ok=True)
    left = False
    with suppress(BrokenPipeError):
        _send({"version": version("millrace"), "free_bytes": daemon.free_bytes})
        left = serve_lease(daemon)
    lock.announce_release()
    daemon.end_all()
    if not left:
        lock.release()
        time.sleep(LINGER_S)
    if left or lock.try_acquire():
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""The data plane without sockets, processes or time: everything that could happen by chance is chosen by the test.

`Pipe` stands where a link would: bytes go in, and come out when and in pieces as the test says. `ScriptedRun` builds
all workers of a run from one `RunSpec` and joins them by pipes; executors, channels, codec, frames and dispatch are the
real ones.
"""

from agents.worker.frame import Frame, FrameReader


class Pipe:
    """One direction of a link: a `Wire` for its sender, and the frames that arrive for its receiver."""

    def __init__(self, epoch: int) -> None:
        self._bytes = bytearray()
        self._reader = FrameReader(epoch)
        self.carried = 0

    def __len__(self) -> int:
        return len(self._bytes)

    def write(self, pieces: list[bytes]) -> None:
        """Take bytes from the sender."""
        self._bytes += b"".join(pieces)

    def carry(self, most: int) -> list[Frame]:
        """Move at most `most` bytes to the receiver; return the frames that are complete with them."""
        moved = bytes(self._bytes[:most])
        del self._bytes[:most]
        self.carried += len(moved)
        return list(self._reader.feed(moved))

"""Assembly of lines from the pieces that a pipe delivers."""

from agents.protocol import MAX_LINE
from inventory.errors import RunError


class Lines:
    """Splits a byte stream into lines; its buffer is bounded."""

    def __init__(self, longest: int = MAX_LINE) -> None:
        self._longest = longest
        self._held = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the non-empty lines that `piece` completes, without newlines.

        Raises:
            RunError: a line exceeds the maximum length.
        """
        *ended, rest = piece.split(b"\n")
        lines = []
        for part in ended:
            self._hold(part)
            if self._held:
                lines.append(bytes(self._held))
                self._held.clear()
        self._hold(rest)
        return lines

    def _hold(self, part: bytes) -> None:
        if len(self._held) + len(part) > self._longest:
            raise RunError(f"a line of more than {self._longest} bytes")
        self._held += part

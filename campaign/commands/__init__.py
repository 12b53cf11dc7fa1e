"""One file per command; each offers a click command called `command`."""

"""The commands of `millrace`, one module each; the module's click command is named `command`."""

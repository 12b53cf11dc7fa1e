"""The commands of `millrace`, grouped by what they are about; the function of a command `name` is `name_command`."""

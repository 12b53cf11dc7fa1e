"""CPU settings of a host: cores online, governor, clock range, turbo, EPP, SMT and driver mode.

A `CpuRequest` holds the requested settings. `plan` checks it without writing, `apply` writes it and reads it back, and
`restore` writes the values of a `Snapshot` back. There is one class per kernel feature (`Feature`). `python -P -m
agents.cpu` provides the same functions as JSON on standard input and output, for provisioning.

This package, `agents.host_files` and `inventory.errors` use the standard library only, so that any host with Python can
run them from one zip archive.
"""

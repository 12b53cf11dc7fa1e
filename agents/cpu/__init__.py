"""CPU settings of a host: cores on line, governor, clock range, turbo, EPP, SMT and driver mode.

A `CpuWish` says what is wanted, `plan` what would change and what is impossible, `apply` writes and reads back,
`restore` puts back what a `Snapshot` holds. Each kernel feature is a file. `python -P -m agents.cpu` offers the same as
JSON on standard input and output, for provisioning.

Everything here, `agents.host_files` and `inventory.errors` use the standard library only: together they are a program
that any host with a Python can run from one zip archive.
"""

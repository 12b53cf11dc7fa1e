"""The controller's own host: processes, signals, locks, durable files, cgroups and namespaces."""

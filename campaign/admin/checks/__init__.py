"""`millrace check`: test whether a scheduler or workload fulfils the contract of its interface."""

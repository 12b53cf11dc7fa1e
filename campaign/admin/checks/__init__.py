"""`millrace check`: what a scheduler or a workload owes, asked of it before a campaign relies on it."""

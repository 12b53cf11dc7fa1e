"""Tables of a report: Spark over the traces, and how its job is started."""

"""Apache Flink as an engine: a JobManager and a TaskManager per worker of a placement, for one job."""

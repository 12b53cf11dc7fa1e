"""Properties of a host: facts, the computing-power index, probes, and recordings of its sysfs."""

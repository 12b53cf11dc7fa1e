"""What a host is: facts, the computing-power index, probes, and recordings of its sysfs."""

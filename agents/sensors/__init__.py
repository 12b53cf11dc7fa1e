"""Sensors: measurements of a node, once a second.

`base` is the interface, `sampler` the thread that reads all sensors. Most other files are sensors, registered under the
entry-point group `millrace.sensors` like third-party ones.
"""

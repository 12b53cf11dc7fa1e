"""What a node measures about itself, once a second.

`base` is the interface, `sampler` the thread that drives it; every other file is one sensor, registered under the
entry-point group `millrace.sensors` like anybody else's.
"""

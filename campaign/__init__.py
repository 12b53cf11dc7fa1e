"""The operator's desk: agenda files, the run loop, the result store and the command line."""

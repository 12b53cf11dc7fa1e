"""Campaigns from the agenda to their results: agenda files, the run loop, the result store and the command line."""

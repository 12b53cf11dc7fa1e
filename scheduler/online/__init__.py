"""Schedulers that revise a running topology: what they observe, what they answer, and what planners share."""

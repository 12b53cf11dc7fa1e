"""The executors and channels of one epoch: built from a plan, changed by migrations."""

"""The schedulers, one file each."""

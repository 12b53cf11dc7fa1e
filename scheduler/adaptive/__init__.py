"""What schedulers share that follow loads and rates: executors in whole numbers, and nodes that fill up."""

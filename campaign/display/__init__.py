"""Output for people: progress, live display, keyboard."""

"""The commands that run a cluster, or a part of one, and keep its state."""

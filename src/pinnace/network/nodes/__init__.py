"""The network between nodes of one machine."""

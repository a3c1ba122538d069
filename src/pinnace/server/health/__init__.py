"""The health of a server: its checks, and the statuses of the components."""

"""The pods of one node in its network: their addresses, the checks of their packets, and the ways in and out."""

"""The web console: pages over the client, nothing else."""

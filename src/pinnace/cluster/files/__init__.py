"""The files of a cluster: the store, its snapshots and the credentials."""

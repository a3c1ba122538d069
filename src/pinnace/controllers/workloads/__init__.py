"""Keeps the number and the revision of the pods of ReplicaSets, Deployments, StatefulSets and DaemonSets."""

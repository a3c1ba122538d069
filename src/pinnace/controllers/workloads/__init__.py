"""Keeps the pods of ReplicaSets, Deployments, StatefulSets and DaemonSets as many and as new as they are wanted."""

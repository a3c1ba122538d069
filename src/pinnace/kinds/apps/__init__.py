"""apps: Deployments, ReplicaSets, StatefulSets, DaemonSets, ControllerRevisions."""

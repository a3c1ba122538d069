"""Questions about a copy of the cluster: why a pod is where it is, what would make it fit, where new pods would go."""

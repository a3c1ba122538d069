"""metrics.k8s.io: the usage of nodes and pods."""

"""metrics.k8s.io, the usage of nodes and pods, and the metrics of the server itself."""

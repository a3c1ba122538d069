"""node.k8s.io: RuntimeClasses."""

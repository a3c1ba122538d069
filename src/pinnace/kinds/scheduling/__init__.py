"""scheduling.k8s.io: PriorityClasses and pod groups."""

"""Node health, taints and addresses, and the deletion of pods on lost nodes."""

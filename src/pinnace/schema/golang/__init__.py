"""How Go prints and parses values, so that messages and formats match Kubernetes."""

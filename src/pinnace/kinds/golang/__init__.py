"""Facts about Kubernetes' Go types: field names, numbers, empty values, printing."""

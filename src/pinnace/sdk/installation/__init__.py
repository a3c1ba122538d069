"""Install an operator: definitions, webhooks and metrics in a running cluster, or manifests for one."""

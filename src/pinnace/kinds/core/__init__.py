"""The core group: nodes, namespaces, configuration, quotas, events."""

"""Custom kinds: from a definition to a served resource."""

"""Custom resources: from a CustomResourceDefinition to a served resource."""

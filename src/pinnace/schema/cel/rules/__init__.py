"""x-kubernetes-validations: rules in a schema, compiled and checked against objects."""

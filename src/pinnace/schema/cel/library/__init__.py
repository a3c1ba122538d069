"""CEL's functions: the standard library, CEL's extensions and Kubernetes' own."""

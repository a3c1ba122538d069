"""apiextensions.k8s.io: CustomResourceDefinitions."""

"""Configuration files in Kubernetes' formats: strictly decoded documents, and files that are reloaded."""

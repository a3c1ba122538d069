"""The shared core of API servers: requests, representations, reads, watches, steps of a write, discovery, OpenAPI."""

"""OpenAPI documents: paths, schemas and custom kinds."""

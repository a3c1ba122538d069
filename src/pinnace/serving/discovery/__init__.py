"""Discovery, OpenAPI and the pages that are not objects."""

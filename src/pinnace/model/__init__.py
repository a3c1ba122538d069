"""The data model: objects, kinds, resources, selectors, patches and errors."""

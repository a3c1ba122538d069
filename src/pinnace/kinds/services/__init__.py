"""Services and endpoints: defaults, validation, addresses."""

"""The built-in resources, one file per API group. Data, not logic."""

"""The built-in resources, one file per API group, and what is special about each."""

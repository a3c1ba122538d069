"""The built-in resources, one folder per API group: rows, validation, columns, conversion."""

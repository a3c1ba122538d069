"""The built-in resources, one module or folder per API group: rows, validation, columns, conversion."""

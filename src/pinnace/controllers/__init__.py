"""The built-in controllers, one file each."""

"""Images: from archives, from registries, and the machine's own file system as an image."""

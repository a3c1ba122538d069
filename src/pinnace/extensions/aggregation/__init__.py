"""API servers behind APIServices."""

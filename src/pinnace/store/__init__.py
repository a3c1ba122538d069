"""Revisioned keys that can be watched, in memory or in SQLite; encrypted if wanted."""

"""Revisioned keys that can be watched: memory, SQLite, etcd."""

"""Revisioned keys that can be watched, in memory, in SQLite or in etcd; encrypted if wanted."""

"""The places where the objects of a served API are kept: memory, a SQLite table, a REST service."""

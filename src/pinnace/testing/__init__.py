"""A cluster inside a test: no ports needed, time under control."""

"""Assembles every part into one running cluster. Read this first."""

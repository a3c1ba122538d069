"""Writes typed Python classes from CustomResourceDefinitions."""

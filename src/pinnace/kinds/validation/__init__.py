"""Checks that several API groups share."""

"""The write pipeline: edits, deletion, subresources, field ownership, reservations."""

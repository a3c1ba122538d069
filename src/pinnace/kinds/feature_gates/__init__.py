"""The feature gates of every minor version, and the fields that they guard."""

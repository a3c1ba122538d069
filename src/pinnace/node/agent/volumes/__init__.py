"""The volumes of pods."""

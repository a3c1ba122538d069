"""The networks of pods and Services."""

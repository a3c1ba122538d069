"""The commands of pinnace, one file each."""

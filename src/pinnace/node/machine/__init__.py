"""Work on this machine that knows nothing of pods: system calls, messages with open files, trees of others' files."""

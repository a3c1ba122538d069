"""CPUs, memory and devices of a pod from the same part of the machine: kubelet's CPU, memory and topology managers."""

"""Several API servers on one etcd: which of them live, and which addresses are given away."""

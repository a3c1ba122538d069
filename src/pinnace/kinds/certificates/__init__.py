"""certificates.k8s.io: CertificateSigningRequests, ClusterTrustBundles, PodCertificateRequests."""

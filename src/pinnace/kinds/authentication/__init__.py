"""authentication.k8s.io: TokenReviews and SelfSubjectReviews."""

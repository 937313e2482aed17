"""The admission webhook: what it answers, its certificates, its own process."""

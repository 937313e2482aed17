"""The admission webhook: its answers, its certificates and its own process."""

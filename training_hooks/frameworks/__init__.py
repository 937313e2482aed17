"""Adaptions to Lightning, transformers, TensorFlow and gloo."""

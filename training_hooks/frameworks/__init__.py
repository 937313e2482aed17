"""What Lightning, transformers, TensorFlow and gloo do in their own ways."""

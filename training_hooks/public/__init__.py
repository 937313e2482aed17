"""The names that a user's script may import: checkpoint, migrator, ElasticSampler."""

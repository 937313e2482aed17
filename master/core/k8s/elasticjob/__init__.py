"""The ElasticJob: its meaning, its validation and its status."""

"""The ElasticJob: what it means, what is wrong with it, and its status."""

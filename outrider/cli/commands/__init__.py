"""The commands that ask or steer a job, one a module."""

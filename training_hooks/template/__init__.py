"""The template: a process with the script's imports done, which forks the ranks."""

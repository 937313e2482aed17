"""The template: a process that has done the script's imports and forks the ranks."""

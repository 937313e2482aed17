"""Pods: made from a template, read back, and what speaks against supervising one."""

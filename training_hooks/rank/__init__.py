"""The process of one rank: its progress page, its phases and the checkpoint that it resumes from."""

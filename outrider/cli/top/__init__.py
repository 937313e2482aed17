"""The view of `outrider top`: where its documents come from, its keys, and what it draws."""

"""`outrider chaos`: faults in local members and in pods."""

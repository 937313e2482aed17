"""When training goes on no more: the limits, the looks, the evidence, the culprit."""

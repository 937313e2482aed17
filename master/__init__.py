if __name__ != "outrider.master":  # under two names its classes would exist twice
    raise ImportError(f"{__name__!r} is imported as outrider.master")

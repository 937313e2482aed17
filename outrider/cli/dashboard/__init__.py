"""`outrider dashboard`: jobs as a page in the browser, for its user alone."""

"""The report of a job as one HTML file: documents in, text out, without I/O.

`reading` reads what strangers may have written, `history` joins the parts of several masters, `advice` computes what
would have helped, `view` makes sentences of it, `page` fills the template. Assets are in `assets/`.
"""

"""`drawbar ui`: a live page of the fabrics, served on loopback.

`device_rows` and `model` turn the cluster into the page's content. `following` keeps it current, `explaining` explains
one object, `server` answers browsers, and the folder `page` holds the page itself.
"""

"""`drawbar ui`: a live page of the fabrics, served on loopback, or in a cluster to each reader with a token.

`device_rows` and `model` turn the cluster into the page's content. `following` keeps it current, `explaining` explains
one object, `server` answers browsers, and the folder `page` holds the page itself. `readers` admits the readers of a page
in a cluster, and `hosting` answers them.
"""

"""`drawbar ui`: a live page of the fabrics, served on loopback.

`device_rows` and `model` make of the cluster what the page shows, `following` keeps that current, `server` sends it to browsers,
and `page` has the page itself.
"""

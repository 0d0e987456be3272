"""The facts that many parts of Drawbar share, each written once.

Daemons, verbs and tests read these tables; `generate.py` writes the reference pages from them.
"""

"""Traces of attaches, across the controller and the node daemon.

The daemons hand spans to a `spans.Sink`. It drops them unless tracing is on; `otlp` sends them to a collector and is imported
only then.
"""

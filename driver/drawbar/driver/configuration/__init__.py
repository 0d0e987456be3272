"""A daemon's settings from a file, the environment and the command line.

A daemon describes its settings as frozen dataclasses, one per topic. Everything else follows from them: the keys of the
file, the names of the environment variables, the flags and their help. One precedence holds for every setting: a flag
wins over the environment, the environment over the file, the file over the default. All errors are listed at once,
each with its place and a remedy. Settings hold no secret: credentials stay in the files that a setting names.
"""

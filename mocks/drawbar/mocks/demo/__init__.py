"""`drawbar demo`: an end-to-end demo on an emulated cluster."""

"""A federation over real sites: certificates, checks, the Flower app, and a trial on one machine.

Nothing here is imported by the rest of the library; the command line's ``fedparity flower`` is a
thin layer over it.
"""

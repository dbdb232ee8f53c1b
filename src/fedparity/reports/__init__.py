"""What people read: tables in the terminal, a page in the browser, progress, lists, explanations.

:mod:`~fedparity.reports.numbers` decides which numbers are shown and marked; the tables in the
terminal and on the page draw them.
"""

"""Join or leave: what every client gets in every coalition of clients.

:func:`coalitions` trains them; :class:`Coalitions` says who is better off alone, which group would
leave together, and what each client brings to each other.
"""

from fedparity.joining.outcome import Coalitions
from fedparity.joining.training import coalitions, lean

__all__ = ["Coalitions", "coalitions", "lean"]

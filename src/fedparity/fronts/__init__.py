"""What one summary costs in another: the front of runs that no other beats in both."""

from fedparity.fronts.front import Frontier, frontier

__all__ = ["Frontier", "frontier"]

"""A method, a dataset, a partition and a metric that are not fedparity's own."""

from own_method.data import rivers
from own_method.metric import missed
from own_method.part import Tempered
from own_method.partition import Uneven

__all__ = ["Tempered", "Uneven", "missed", "rivers"]

"""Where the time of a round goes."""

from fedparity.profiling.profile import Phase, Profile, profile

__all__ = ["Phase", "Profile", "profile"]

"""Settings of all tests."""

from hypothesis import settings

# The first call loads code and starts threads, and CI machines are noisy: no test is timed.
settings.register_profile("whorl", deadline=None)
settings.load_profile("whorl")

"""Settings of the kernel tests."""

from hypothesis import settings

# The first call of a kernel loads code and starts threads, which says nothing about the case.
settings.register_profile("kernels", deadline=None)
settings.load_profile("kernels")

"""What rotations share: the calls, their checks, and the way from positions to the kernel."""

"""What all rotations share: the class ``Rotary``, and the way from positions to the kernel."""

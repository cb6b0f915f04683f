"""Small parts that several rooms share and that know nothing about encodings."""

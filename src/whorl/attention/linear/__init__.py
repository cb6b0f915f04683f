"""Linear attention: feature maps, and sums over earlier keys in place of a matrix of scores."""

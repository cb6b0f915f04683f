"""How a rotation is computed: the oracle, the native library, the torch operator."""

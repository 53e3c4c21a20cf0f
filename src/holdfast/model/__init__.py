"""The nouns: plain values without I/O and without a clock."""

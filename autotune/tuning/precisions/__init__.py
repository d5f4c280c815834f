"""``--precision auto``: which products multiply bf16 operands, by what was measured of them."""

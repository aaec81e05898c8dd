"""Mathematics checked by a library, and by a judge model where the library is not convinced."""

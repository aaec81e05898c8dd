"""The student as a network: what it reads, what it computes, what its outputs mean."""

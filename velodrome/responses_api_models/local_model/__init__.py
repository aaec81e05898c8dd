"""A real language model in this process, through llama.cpp."""

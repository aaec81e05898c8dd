"""Environments beyond the core, and the sandbox for code from models. The core works without them."""

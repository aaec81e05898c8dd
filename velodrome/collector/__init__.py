"""Run tasks x repeats against an agent, in parallel, into a file."""

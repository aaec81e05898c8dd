"""A trained policy as a thing: found by name, asked for actions, evaluated, exported and filmed."""

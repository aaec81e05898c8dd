"""The web apps of components and of the head: routes, sessions, descriptions, measures."""

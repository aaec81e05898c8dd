"""How long a test waits for what must come: it ends a hang and measures nothing."""

DEADLINE_S = 600

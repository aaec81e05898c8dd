"""Mail, a calendar and contacts, verified by their final state."""

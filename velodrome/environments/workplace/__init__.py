"""Mail, a calendar and contacts, verified by how they are left."""

"""Mail, calendar and contacts, verified by what changed. (Engineer worlds: this one is taken, leave it.)"""

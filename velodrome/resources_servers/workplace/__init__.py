"""Mail, calendar and contacts of an office: tasks of several steps, scored by what has changed in the end."""

"""The runs in a viewer: files and folders from its command line."""

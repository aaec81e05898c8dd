"""The runs that a viewer was given or found below a folder."""

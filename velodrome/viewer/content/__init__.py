"""What a model wrote, drawn: text in, markup out. Nothing here reads or writes anything.

Each function returns markup that it built itself from a fixed set of elements and attributes, or None: show it plain.
"""

"""One self-contained HTML file, and Markdown, from saved records.

Does not do: measuring anything.
"""

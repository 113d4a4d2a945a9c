"""One self-contained HTML page, a Markdown file and a one-screen summary, from the saved records of a run.

Read ``load.py`` (what a run folder holds), then ``content.py`` (what is said about it), then one rendering:
``page.py``, ``markdown.py`` or ``terminal.py``. ``write.py`` puts the files into the run folder.

Does not do: measuring, judging or changing anything; the same records always give the same bytes.
"""

"""What you want to run: where it comes from, and what its headers say it is made of.

Read :func:`freehold.models.inventory.read_inventory` first, then ``source.py`` for checkpoints that have to be fetched.

Does not do: loading weights, or running anything that comes with a model.
"""

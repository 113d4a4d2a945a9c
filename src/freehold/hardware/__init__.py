"""What you own: processors, accelerators, memory and disks, and how they are right now.

Does not do: choosing or judging (``plan/``, ``preflight/``).
"""

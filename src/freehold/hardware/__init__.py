"""What you own

Does not do:  accelerators, memory, disks; probing them.:choosing or judging (`plan/`, `preflight/`).
"""

"""What you want to run

Does not do:  where it comes from, and what its headers say it is made of.:loading weights.
"""

"""How is a kernel's source turned into something the GPU runs, and how is it started?

``source`` reads the .cu files, ``nvrtc`` compiles them for one architecture, ``cache`` keeps the result
on disk, ``driver`` loads and launches. Read first: ``kernel.load_kernel``.
Does not do: choose kernels (``dispatch``) or define torch operators (``ops``).
"""

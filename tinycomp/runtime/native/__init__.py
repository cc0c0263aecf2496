"""The C runtime: its library, what it knows of the processor, programs, and how they run."""

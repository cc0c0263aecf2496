"""What is to be known about graphs without changing them, for passes, the driver and servers."""

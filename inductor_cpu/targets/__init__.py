"""What the compiler knows of the machine: the vector instruction sets and the caches of the CPU."""

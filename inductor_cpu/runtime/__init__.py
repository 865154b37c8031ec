"""From C++ text to a running plan: toolchain, kernel cache, parallel compilers and the native executor."""

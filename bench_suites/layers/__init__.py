"""Some 440 single layers and functions, each compiled alone and timed against eager mode: where a user's layer would be
slower than without icpu is found here, also where no model of the suites has that layer."""

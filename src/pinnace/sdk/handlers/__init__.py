"""The functions that an operator's author writes: how they are declared, checked and called."""

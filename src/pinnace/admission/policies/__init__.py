"""ValidatingAdmissionPolicy and MutatingAdmissionPolicy."""

"""All that an extension author imports."""

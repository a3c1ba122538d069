"""What an object is: its kind, resource, identity, selectors, patches and errors."""

"""Parts of the control plane that run as processes of their own."""

"""The stages of a request, built from the settings: authentication, authorization, admission, verbs."""

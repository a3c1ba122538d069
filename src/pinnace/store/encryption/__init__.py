"""Encryption of stored values by an EncryptionConfiguration: providers with local keys, and KMS plug-ins."""

"""What is special about webhooks, policies, API services and flow control."""

from pinnace.model.resources import Strategy

MUTATING_WEBHOOK_CONFIGURATION = Strategy()
VALIDATING_WEBHOOK_CONFIGURATION = Strategy()
VALIDATING_ADMISSION_POLICY = Strategy()
VALIDATING_ADMISSION_POLICY_BINDING = Strategy()
MUTATING_ADMISSION_POLICY = Strategy()
MUTATING_ADMISSION_POLICY_BINDING = Strategy()
API_SERVICE = Strategy()
CUSTOM_RESOURCE_DEFINITION = Strategy()
FLOW_SCHEMA = Strategy()
PRIORITY_LEVEL_CONFIGURATION = Strategy()
STORAGE_VERSION_MIGRATION = Strategy()

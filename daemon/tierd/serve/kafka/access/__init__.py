"""Access to the read endpoint: certificates, logins, principals, rules of access, quotas, quarantine."""

from tierd.serve.kafka.access.authorizer import Authorizer, RuleAuthorizer

__all__ = ["Authorizer", "RuleAuthorizer"]

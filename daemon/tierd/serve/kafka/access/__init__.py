"""Access to the read endpoint: certificates, logins, principals, rules of access, quotas, quarantine."""

from tierd.serve.kafka.access.authorizer import Authorizer
from tierd.serve.kafka.access.client_certificates import certificate_principal
from tierd.serve.kafka.access.principal_quotas import PrincipalQuotas

__all__ = ["Authorizer", "PrincipalQuotas", "certificate_principal"]

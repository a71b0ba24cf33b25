"""Access to the read endpoint: certificates, logins, principals, rules of access, quotas, quarantine."""

from tierd.serve.kafka.access.authorizer import Authorizer
from tierd.serve.kafka.access.client_certificates import certificate_principal
from tierd.serve.kafka.access.endpoint_access import AccessStatistics, EndpointAccess
from tierd.serve.kafka.access.listener_certificates import certificate_end, server_context
from tierd.serve.kafka.access.principal_quotas import PrincipalQuotas

__all__ = [
    "AccessStatistics",
    "Authorizer",
    "EndpointAccess",
    "PrincipalQuotas",
    "certificate_end",
    "certificate_principal",
    "server_context",
]

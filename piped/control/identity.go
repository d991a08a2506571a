package control

import "github.com/c785c783/piped/piped/certificate"

// SetIdentity replaces the certificate for new connections. It has no effect on a server
// without TLS.
func (s *Server) SetIdentity(i *certificate.Identity) { s.identity.Set(i) }

// SetRateLimit replaces the limit of calls per user and API key.
func (s *Server) SetRateLimit(limit RateLimit) { s.guard.calls.Set(limit.rate(), limit.Burst) }

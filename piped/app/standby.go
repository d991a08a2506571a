package app

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/forward"
	"github.com/c785c783/piped/piped/store"
)

// agentID identifies an agent in its store: all its replicas have the same.
func agentID(cfg *config.Piped) string { return cfg.ProjectID + "/" + cfg.PipedID }

// standby is what an agent does while a replica of it works: it passes what clients send to its
// own addresses on to that one, so that a Service may lead to any replica.
type standby struct {
	cfg *config.Piped
	log *slog.Logger

	api, web *forward.Forwarder // nil before follow
}

// follow is called with each change of the active agent.
func (s *standby) follow(active store.Active) (err error) {
	if s.api == nil {
		s.log.Info("another replica works with the database; this one stands by, and takes over when that one ends", "active", active.Host)
		if s.api, err = forward.Listen(s.cfg.API.Address, s.log); err != nil {
			return fmt.Errorf("api.address: %w", err)
		}
		if s.web, err = forward.Listen(s.cfg.Web.Address, s.log); err != nil {
			return fmt.Errorf("web.address: %w", err)
		}
		s.log.Info("forwarding connections to the active replica", "api", s.api.Addr(), "web", s.web.Addr())
	}
	s.api.SetTarget(active.API)
	s.web.SetTarget(active.Web)
	s.log.Info("following the active replica", "active", active.Host, "api", active.API, "web", active.Web)
	return nil
}

// end frees the addresses, on which the agent itself listens now.
func (s *standby) end() error {
	var errs []error
	for _, f := range []*forward.Forwarder{s.api, s.web} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	if s.api != nil {
		s.log.Info("this replica stands by no more")
	}
	return errors.Join(errs...)
}

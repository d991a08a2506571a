package app

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"

	"github.com/c785c783/piped/executor/script"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/forward"
	"github.com/c785c783/piped/piped/store"
)

// ErrChanged is the error of New if the configuration has changed while the agent stood by: it
// must be loaded again.
var ErrChanged = errors.New("the configuration has changed while this replica stood by")

// agentID identifies an agent in its store: all its replicas have the same.
func agentID(cfg *config.Piped) string { return cfg.ProjectID + "/" + cfg.PipedID }

// standby is what an agent does while a replica of it works: it passes what clients send to its
// own addresses on to that one, so that a Service may lead to any replica. If the replicas share the
// work, it also plans and runs deployments.
type standby struct {
	cfg     *config.Piped
	options Options
	file    string // of the configuration; "" if it is not known
	log     *slog.Logger

	// Set by begin.
	seen     [sha256.Size]byte // digest of the configuration
	api, web *forward.Forwarder
	workers  *workers // nil unless the replicas share the work
}

// follow is called with each change of the active agent.
func (s *standby) follow(active store.Active) error {
	if s.api == nil {
		s.log.Info("another replica works with the database; this one stands by, and takes over when that one ends", "by", active.Host)
		if err := s.begin(); err != nil {
			return err
		}
	}
	s.api.SetTarget(active.API)
	s.web.SetTarget(active.Web)
	s.log.Info("following the active replica", "by", active.Host, "api", active.API, "web", active.Web)
	return nil
}

// begin binds the addresses. What a killed process left of its scripts is removed now, because the
// wait may be long, and certificates that cannot be read are found now, and not by the takeover.
func (s *standby) begin() error {
	s.seen = digestOf(s.file, s.cfg.Files())
	if err := script.Clean(scriptsDir(s.cfg)); err != nil {
		return err
	}
	_, apiErr := apiCertificate(s.cfg.API).Load()
	_, webErr := webCertificate(s.cfg.Web).Load()
	if err := errors.Join(apiErr, webErr); err != nil {
		return err
	}
	api, err := forward.Listen(s.cfg.API.Address, s.log)
	if err != nil {
		return fmt.Errorf("api.address: %w", err)
	}
	web, err := forward.Listen(s.cfg.Web.Address, s.log)
	if err != nil {
		return errors.Join(fmt.Errorf("web.address: %w", err), api.Close())
	}
	s.api, s.web = api, web
	if shares(s.cfg) {
		s.workers = startWorkers(s.cfg, s.options, s.log)
	}
	return nil
}

// end frees the addresses, on which the agent itself listens now.
func (s *standby) end() error {
	if s.api == nil {
		return nil
	}
	if s.workers != nil {
		s.workers.end()
	}
	err := errors.Join(s.api.Close(), s.web.Close())
	if s.file != "" && digestOf(s.file, s.cfg.Files()) != s.seen {
		err = errors.Join(err, ErrChanged)
	}
	return err
}

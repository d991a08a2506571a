package app

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"

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
// work, it works itself: see newWorker.
type standby struct {
	cfg     *config.Piped
	options Options
	file    string // of the configuration; "" if it is not known
	log     *slog.Logger

	// Set by begin.
	seen    [sha256.Size]byte // digest of the configuration
	at      *addresses
	workers *workers // nil unless the replicas share the work
}

// addresses are those of a standby. Connections are passed on to the replica that has the database,
// unless a worker accepts them.
type addresses struct{ api, web *forward.Forwarder }

// listenAPI returns how a worker accepts connections to the control API. It is nil for an agent that
// binds its addresses itself, as a is.
func (a *addresses) listenAPI() func() (net.Listener, error) {
	if a == nil {
		return nil
	}
	return a.api.Accept
}

// listenWeb is listenAPI for the HTTP server.
func (a *addresses) listenWeb() func() (net.Listener, error) {
	if a == nil {
		return nil
	}
	return a.web.Accept
}

// follow is called with each change of the active agent.
func (s *standby) follow(active store.Active) error {
	if s.at == nil {
		s.log.Info("another replica works with the database; this one stands by, and takes over when that one ends", "by", active.Host)
		if err := s.begin(); err != nil {
			return err
		}
	}
	s.at.api.SetTarget(active.API)
	s.at.web.SetTarget(active.Web)
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
	s.at = &addresses{api, web}
	if shares(s.cfg) {
		s.workers = startWorkers(s.cfg, s.options, s.at, s.log)
	}
	return nil
}

// end frees the addresses, on which the agent itself listens now.
func (s *standby) end() error {
	if s.at == nil {
		return nil
	}
	if s.workers != nil {
		s.workers.end()
	}
	err := errors.Join(s.at.api.Close(), s.at.web.Close())
	if s.file != "" && digestOf(s.file, s.cfg.Files()) != s.seen {
		err = errors.Join(err, ErrChanged)
	}
	return err
}

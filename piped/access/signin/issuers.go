package signin

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/c785c783/piped/piped/config"
)

// Options are what issuers need besides their configuration.
type Options struct {
	// Transport sends requests to issuers; nil is one that does not connect to cloud metadata
	// services.
	Transport http.RoundTripper
	Now       func() time.Time
	Logger    *slog.Logger
}

// Issuers are the configured issuers. Its methods are safe for concurrent use.
type Issuers struct {
	options Options
	client  *http.Client
	list    atomic.Pointer[[]Issuer]
}

// NewIssuers returns an empty list.
func NewIssuers(o Options) *Issuers {
	if o.Transport == nil {
		o.Transport = newTransport()
	}
	i := &Issuers{options: o, client: newClient(o.Transport)}
	i.list.Store(&[]Issuer{})
	return i
}

// Set replaces the issuers by those of a configuration. On an error, of kind deploy.Invalid,
// they stay as they were. It does not contact issuers, and what is known of unchanged ones
// stays known.
func (i *Issuers) Set(access config.Access) error {
	var list []Issuer
	for _, c := range access.Issuers {
		secret, err := c.Load()
		if err != nil {
			return err
		}
		one, err := i.open(c, secret.Reveal(), access.ExternalURL+"/sign-in/"+c.Name+"/callback")
		if err != nil {
			return err
		}
		if before, ok := i.Find(c.Name); ok && before.same(one) {
			one = before
		}
		list = append(list, one)
	}
	i.list.Store(&list)
	return nil
}

func (i *Issuers) open(c config.Issuer, secret, callback string) (Issuer, error) {
	if c.Type == config.IssuerGitHub {
		return newGitHub(c, secret, callback, i.client, i.options.Now)
	}
	return &provider{config: c, secret: secret, callback: callback, client: i.client, now: i.options.Now}, nil
}

// All returns the issuers in the order of the configuration. The caller must not change the
// list.
func (i *Issuers) All() []Issuer { return *i.list.Load() }

// Find returns an issuer by name.
func (i *Issuers) Find(name string) (Issuer, bool) {
	for _, issuer := range i.All() {
		if issuer.Name() == name {
			return issuer, true
		}
	}
	return nil, false
}

// probeEvery is the interval at which issuers are contacted, if they are away or were not
// contacted for some time.
const probeEvery = 15 * time.Second

// Run keeps Away of each issuer current, and logs changes, until ctx ends.
func (i *Issuers) Run(ctx context.Context) {
	defer i.client.CloseIdleConnections()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	away := map[string]bool{}
	for {
		i.probe(ctx)
		for _, issuer := range i.All() {
			if ctx.Err() == nil {
				i.report(ctx, issuer, away)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// probe contacts all issuers at the same time.
func (i *Issuers) probe(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, issuer := range i.All() {
		all.Go(func() { issuer.probe(ctx) })
	}
}

// report logs that an issuer went away or came back.
func (i *Issuers) report(ctx context.Context, issuer Issuer, away map[string]bool) {
	err := issuer.Away()
	switch {
	case err != nil && !away[issuer.Name()]:
		i.options.Logger.WarnContext(ctx, "users cannot sign in at an issuer; retrying", "issuer", issuer.Name(), "error", err)
	case err == nil && away[issuer.Name()]:
		i.options.Logger.InfoContext(ctx, "users can sign in at an issuer again", "issuer", issuer.Name())
	}
	away[issuer.Name()] = err != nil
}

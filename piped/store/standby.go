package store

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/c785c783/piped/piped/deploy"
)

// Active is the agent that works with a database while others stand by.
type Active struct {
	// Host describes the process: its host, its process ID and since when it has the database.
	Host string
	// API and Web are the addresses on which it listens; "" while they are not known, and for
	// those that cannot be reached from this host.
	API, Web string
}

// Standby is called when an agent begins to stand by, and when it learns more about the active
// agent. An error ends the wait.
type Standby func(Active) error

const (
	// standbyEvery is the interval in which a standby tries to get the database, in one request that
	// also says whether the active agent has changed.
	standbyEvery = time.Second
	// activeEvery is the interval in which a standby reads who is active without such a change.
	activeEvery = 10 * time.Second
)

// undefinedSetting, undefinedTable and undefinedColumn are PostgreSQL's codes of errors for a
// server or a schema of an earlier version.
const (
	undefinedSetting = "42704"
	undefinedTable   = "42P01"
	undefinedColumn  = "42703"
)

// standBy waits for the lock as long as the active agent is a replica of this one, and acquires
// it.
func (h *sessionHold) standBy(ctx context.Context, standby Standby) error {
	var known *Active
	var mark string // of the active agent
	var read time.Time
	for ; ctx.Err() == nil; pause(ctx, standbyEvery) {
		active, next, err := known, mark, error(nil)
		if known == nil || known.API == "" || time.Since(read) >= activeEvery {
			active, err = h.read(ctx)
			read = time.Now()
		}
		if err == nil {
			next, err = h.attempt(ctx, *active)
		}
		if err == nil {
			return nil
		}
		if deploy.IsKind(err, deploy.Conflict) {
			if next != mark {
				mark, read = next, time.Time{} // read it at the next attempt
			}
			if known == nil || *known != *active {
				known = active
				if err := standby(*active); err != nil {
					return err
				}
			}
			continue
		}
		if h.dialect.unavailable(err) || errors.Is(err, context.DeadlineExceeded) {
			err = h.redial(ctx, err)
			read = time.Time{}
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// read returns who is active, and names the connection that of a standby.
func (h *sessionHold) read(ctx context.Context) (*Active, error) {
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	active, err := h.active(ctx)
	if err == nil {
		err = h.rename(ctx, standbyName+" || ' ' || $1", self())
	}
	return &active, err
}

// attempt tries to acquire the lock. With the error Conflict it returns a mark that changes with the
// active agent and its addresses, "" if that has stored none.
func (h *sessionHold) attempt(ctx context.Context, active Active) (mark string, err error) {
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	query := "SELECT pg_try_advisory_lock($1, hashtext(current_schema())), ''"
	if active.API != "" { // the table exists, with these columns
		query = "SELECT pg_try_advisory_lock($1, hashtext(current_schema())), COALESCE((SELECT token || ' ' || api_address || ' ' || web_address FROM store_owner), '')"
	}
	taken := false
	if err := h.conn.QueryRow(ctx, query, holdClass).Scan(&taken, &mark); err != nil {
		return "", err
	}
	if !taken {
		return mark, inUse(h.dialect, active.Host)
	}
	return mark, h.rename(ctx, "$1", agentName())
}

// standbyName is the expression for how the names of connections of standbys begin. Several agents
// may use schemas of one database.
const standbyName = "'piped standby ' || hashtext(current_schema())"

// rename changes the name by which others see the connection.
func (h *sessionHold) rename(ctx context.Context, expression, argument string) error {
	_, err := h.conn.Exec(ctx, "SELECT set_config('application_name', left("+expression+", 63), false)", argument)
	return err
}

func (h *sessionHold) standbys(ctx context.Context) ([]string, error) {
	return all(ctx, h.store, scanText, `SELECT substr(application_name, length(`+standbyName+`) + 2) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE `+standbyName+` || ' %' ORDER BY 1`)
}

// redial connects a standby again after a failure, with retries until ctx ends or the server
// refuses it, such as for its password.
func (h *sessionHold) redial(ctx context.Context, failure error) error {
	_ = h.release() // the connection is replaced either way
	for said := ""; ; pause(ctx, listenBackoff) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if text := failure.Error(); text != said {
			h.store.log.Warn("this standby lost its connection to the database, connecting again", "error", failure)
			said = text
		}
		limited, cancel := context.WithTimeout(ctx, holdTimeout)
		failure = h.dial(limited)
		cancel()
		if failure == nil || postgresCode(failure) != "" && !h.dialect.unavailable(failure) {
			return failure
		}
	}
}

// active reads who has the database. The error is Invalid if it is no replica of this agent: it has
// another ID or another key.
func (h *sessionHold) active(ctx context.Context) (Active, error) {
	out := Active{Host: lockHolder(ctx, h.conn)}
	var agent, host, key string
	err := h.conn.QueryRow(ctx, "SELECT agent, host, key_fingerprint, api_address, web_address FROM store_owner").Scan(&agent, &host, &key, &out.API, &out.Web)
	if code := postgresCode(err); errors.Is(err, pgx.ErrNoRows) || code == undefinedTable || code == undefinedColumn {
		return out, nil // it has not stored it yet, or is of an earlier version
	}
	if err != nil {
		return out, err
	}
	if name := out.Host; strings.HasPrefix(name, "piped ") && !strings.HasPrefix(name, agentNameOf(host)+",") {
		return Active{Host: name}, nil // the one that has the lock has not claimed the database yet
	}
	if agent != "" && agent != h.store.agent {
		return out, deploy.Errorf(deploy.Invalid, "%s belongs to the agent with projectID/pipedID %q, and this one is %q: give each agent a store.dsn of its own", h.dialect.name(), agent, h.store.agent)
	}
	if key != "" && key != h.store.keyPrint {
		return out, deploy.Errorf(deploy.Invalid, "%s is in use by a replica of this agent (%s) with another key: give all replicas the same store.keyFile", h.dialect.name(), out.Host)
	}
	if !reachable(host, self(), out.API) {
		out.API = ""
	}
	if !reachable(host, self(), out.Web) {
		out.Web = ""
	}
	return out, nil
}

// reachable reports whether an address of another process can be reached from this one: one of
// the loopback interface only on the same host.
func reachable(other, own, address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return ip == nil || !ip.IsLoopback() || hostOf(other) == hostOf(own)
}

// hostOf returns the host of a process that self describes.
func hostOf(process string) string {
	host, _, _ := strings.Cut(process, " pid ")
	return host
}

// addresses are where an agent listens.
type addresses struct{ api, web string }

// Advertise tells standbys the addresses on which this agent listens. The IP address of one that
// listens on all interfaces is that of its connection to the database.
func (s *Store) Advertise(ctx context.Context, api, web string) error {
	if s.hold == nil {
		return nil
	}
	return s.fail(s.hold.advertise(ctx, api, web), "advertise the addresses of the agent")
}

func (h *sessionHold) advertise(ctx context.Context, api, web string) error {
	h.listens.Store(&addresses{api, web})
	return h.store.write(ctx, func(t *tx) error {
		at := h.addresses()
		_, err := t.exec(ctx, "UPDATE store_owner SET api_address = ?, web_address = ? WHERE token = ?", at.api, at.web, h.token())
		return err
	})
}

// addresses returns what was advertised last, as others reach it.
func (h *sessionHold) addresses() addresses {
	if at := h.listens.Load(); at != nil {
		return addresses{h.specific(at.api), h.specific(at.web)}
	}
	return addresses{}
}

// specific returns an address with the IP address of the connection in place of that of all
// interfaces. Where a proxy on this machine leads to the database, it is the machine's first.
func (h *sessionHold) specific(address string) string {
	host, port, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	if err != nil || host != "" && (ip == nil || !ip.IsUnspecified()) {
		return address
	}
	local := net.ParseIP(*h.local.Load())
	if local.IsLoopback() {
		all, _ := net.InterfaceAddrs() // without them the loopback address remains
		for _, a := range all {
			if own, ok := a.(*net.IPNet); ok && own.IP.IsGlobalUnicast() {
				local = own.IP
				break
			}
		}
	}
	return net.JoinHostPort(local.String(), port)
}

// fingerprint identifies a key without revealing it.
func fingerprint(key []byte) string {
	if len(key) == 0 {
		return ""
	}
	sum := hmac.New(sha256.New, key)
	sum.Write([]byte("fingerprint of the key of a store"))
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

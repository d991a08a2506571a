package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/store/pgtest"
)

const (
	storesCount  = 20
	storesRounds = 12
)

// keeper is an agent with one kind of store, and what its commits took and cost.
type keeper struct {
	name string
	*scene
	fleet     fleet
	took, cpu []time.Duration // by round
}

// measureStores sends commits that change the image of 20 applications through three agents, in turn:
// one on SQLite, one on PostgreSQL, and one on PostgreSQL that owns its work as a single replica and
// proves that in each write.
func measureStores(ctx context.Context, e *environment) (err error) {
	var server pgtest.Server
	defer server.Close()
	var keepers []*keeper
	defer func() {
		for _, k := range keepers {
			err = errors.Join(err, k.agent.Close())
		}
	}()
	for _, name := range []string{"sqlite", "postgres", "replica"} {
		k := &keeper{name: name, fleet: fleet{count: storesCount, replicas: 1, template: web, namespace: "bench-stores-" + name}}
		if _, err := e.client(ctx, k.fleet.namespace); err != nil {
			return err
		}
		o := agenttest.Options{Interval: 50 * time.Millisecond}
		if name == "replica" {
			o.Share, o.StoreKey = true, filepath.Join(e.dir, "store.key")
			if err := os.WriteFile(o.StoreKey, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
				return err
			}
		}
		if name != "sqlite" {
			if o.DSN, err = server.Database(); err != nil {
				return err
			}
		}
		if k.scene, err = e.newScene(ctx, "stores-"+name, o); err != nil {
			return err
		}
		keepers = append(keepers, k)
	}
	for round := range storesRounds {
		for i := range keepers {
			k := keepers[(round+i)%len(keepers)] // none is always the first, or follows the same one
			if err := k.round(ctx, round); err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
		}
	}
	e.compareStores(keepers[0], keepers[1], keepers[2])
	return nil
}

// round sends one commit. The first creates the objects, and is not counted.
func (k *keeper) round(ctx context.Context, round int) error {
	tag := fmt.Sprintf("v%d", round)
	p, err := k.pass(ctx, tag, k.fleet.files(tag, tag), k.fleet.count)
	if err != nil || round == 0 {
		return err
	}
	k.took, k.cpu = append(k.took, p.took), append(k.cpu, p.cpu)
	return nil
}

// compareStores prints what a commit took and cost. What fencing costs is the difference between the
// replica and the agent on PostgreSQL alone.
func (e *environment) compareStores(sqlite, postgres, replica *keeper) {
	for _, k := range []*keeper{sqlite, postgres, replica} {
		e.info("stores."+k.name+".commit.median", seconds(median(k.took)), "s")
		e.info("stores."+k.name+".commit.worst", seconds(worst(k.took)), "s")
		e.info("stores."+k.name+".cpu.median", milliseconds(median(k.cpu)), "ms")
	}
	e.atMost("stores.postgres.cpu.ratio_to_sqlite", ratioOf(postgres.cpu, sqlite.cpu), "x", 1.3)
	e.atMost("stores.replica.commit.ratio_to_postgres", ratioOf(replica.took, postgres.took), "x", 1.05)
	e.atMost("stores.replica.cpu.ratio_to_postgres", ratioOf(replica.cpu, postgres.cpu), "x", 1.05)
}

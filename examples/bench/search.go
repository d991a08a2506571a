package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

const (
	searchApplications = 10_000
	searchRepeats      = 200
	searchTarget       = 20 // milliseconds
)

// searchBench is one run of measureSearch.
type searchBench struct {
	*environment
	client controlv1.ControlServiceClient
	store  *store.Store
	key    string
	apps   []deploy.Application
}

// measureSearch stores 10,000 applications and measures SearchApplications through gRPC: with
// words, with facets, and page by page. The floor is a scan of the names, paths and labels in
// this process, without filters, counts, messages and network.
func measureSearch(ctx context.Context, e *environment) (err error) {
	b := &searchBench{environment: e}
	if b.store, err = store.Open(ctx, "sqlite://"+filepath.Join(e.dir, "search.db"), store.Options{}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.store.Close()) }()
	b.key, err = b.fill(ctx)
	if err != nil {
		return fmt.Errorf("fill the store: %w", err)
	}
	server, err := control.New(control.Config{Address: "127.0.0.1:0", Store: b.store, PipedID: "bench", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	run, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- server.Run(run) }()
	defer func() {
		stop()
		err = errors.Join(err, <-served)
	}()
	conn, err := grpc.NewClient(server.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	b.client = controlv1.NewControlServiceClient(conn)
	return b.measure(metadata.AppendToOutgoingContext(ctx, "authorization", "API-KEY "+b.key))
}

// fill stores the applications and returns an API key that may read them.
func (b *searchBench) fill(ctx context.Context) (key string, err error) {
	a, err := newReader(ctx, b.store, "search")
	if err != nil {
		return "", err
	}
	for i := range searchApplications {
		name := fmt.Sprintf("service-%05d", i)
		b.apps = append(b.apps, deploy.Application{
			ID: fmt.Sprintf("id-%05d", i), Name: name, Kind: deploy.KindKubernetes, Provider: fmt.Sprint("cluster-", i%5), Description: "The service number " + fmt.Sprint(i),
			Git:    deploy.GitPath{RepoID: fmt.Sprint("repo-", i%20), Remote: "https://git.example.com/apps.git", Branch: "main", Dir: "teams/" + name, ConfigFile: "app.pipecd.yaml"},
			Labels: map[string]string{"team": fmt.Sprint("team-", i%100), "env": []string{"dev", "staging", "prod"}[i%3]},
			Sync:   deploy.SyncState{Status: deploy.SyncStatuses()[i%2], At: time.Now()},
		})
	}
	_, errs := b.store.PutApplications(ctx, b.apps)
	return a, errors.Join(errs...)
}

// newReader stores an API key that may read, and returns it.
func newReader(ctx context.Context, s *store.Store, name string) (string, error) {
	record, key, err := access.NewAPIKey(name, name, deploy.ReadOnly, time.Now(), rand.Reader)
	if err != nil {
		return "", err
	}
	return key, s.CreateAPIKey(ctx, record)
}

// measure prints the figures. The first search, which reads the store, is separate.
func (b *searchBench) measure(ctx context.Context) error {
	facets := []string{"state", "sync", "health", "kind", "provider", "repository", "enabled", "deployment", "label", "label:team", "label:env"}
	began := time.Now()
	if _, err := b.client.SearchApplications(ctx, &controlv1.SearchApplicationsRequest{}); err != nil {
		return err
	}
	b.info("search.applications", searchApplications, "")
	b.info("search.first", milliseconds(time.Since(began)), "ms")
	for _, c := range []struct {
		name string
		next func(cursor string) *controlv1.SearchApplicationsRequest
	}{
		{"text", func(string) *controlv1.SearchApplicationsRequest {
			return &controlv1.SearchApplicationsRequest{Text: "service prod team-7"}
		}},
		{"facets", func(string) *controlv1.SearchApplicationsRequest {
			return &controlv1.SearchApplicationsRequest{
				Facets: facets, Filters: []*controlv1.FacetFilter{{Facet: "label:env", Values: []string{"prod"}}, {Facet: "enabled", Values: []string{"true"}}},
				Order: controlv1.ApplicationOrder_APPLICATION_ORDER_STATE,
			}
		}},
		{"paged", func(cursor string) *controlv1.SearchApplicationsRequest {
			return &controlv1.SearchApplicationsRequest{Cursor: cursor, Order: controlv1.ApplicationOrder_APPLICATION_ORDER_UPDATED}
		}},
	} {
		if err := b.repeat(ctx, c.name, c.next); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return b.afterChanges(ctx)
}

// repeat measures one kind of search, each next to its floor.
func (b *searchBench) repeat(ctx context.Context, name string, next func(cursor string) *controlv1.SearchApplicationsRequest) error {
	var took, floors []time.Duration
	cursor := ""
	for range searchRepeats {
		began := time.Now()
		resp, err := b.client.SearchApplications(ctx, next(cursor))
		if err != nil {
			return err
		}
		took, cursor = append(took, time.Since(began)), resp.GetCursor()
		floors = append(floors, b.scan("team-7"))
	}
	b.atMost("search."+name+".median", milliseconds(median(took)), "ms", searchTarget)
	b.atMost("search."+name+".worst", milliseconds(worst(took)), "ms", searchTarget)
	b.info("search."+name+".floor.median", milliseconds(median(floors)), "ms")
	b.info("search."+name+".floor.worst", milliseconds(worst(floors)), "ms")
	b.info("search."+name+".per_floor", ratioOf(took, floors), "x")
	return nil
}

// scan returns how long it takes to look for a word in all applications.
func (b *searchBench) scan(word string) time.Duration {
	began, found := time.Now(), 0
	for i := range b.apps {
		a := &b.apps[i]
		if strings.Contains(a.Name, word) || strings.Contains(a.Git.Dir, word) || strings.Contains(a.Labels["team"], word) {
			found++
		}
	}
	if took := time.Since(began); found > 0 {
		return took
	}
	return 0
}

// afterChanges measures searches of which each follows the change of an application.
func (b *searchBench) afterChanges(ctx context.Context) error {
	var took []time.Duration
	for i := range searchRepeats {
		state := deploy.SyncState{Status: deploy.OutOfSync, ShortReason: "1 object differs", At: time.Now()}
		if _, err := b.store.SetSyncState(ctx, b.apps[i].ID, state); err != nil {
			return err
		}
		began := time.Now()
		resp, err := b.client.SearchApplications(ctx, &controlv1.SearchApplicationsRequest{Text: "service", Facets: []string{"state"}, Filters: []*controlv1.FacetFilter{{Facet: "state", Values: []string{"DRIFTED"}}}})
		if err != nil {
			return err
		}
		if took = append(took, time.Since(began)); int(resp.GetTotal()) != i+1 {
			return fmt.Errorf("%d applications drift, expected %d: a committed change is missing", resp.GetTotal(), i+1)
		}
	}
	b.atMost("search.after_change.median", milliseconds(median(took)), "ms", searchTarget)
	b.atMost("search.after_change.worst", milliseconds(worst(took)), "ms", searchTarget)
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
)

const (
	apiClients   = 200
	apiNamespace = "bench-api"
	apiAtOnce    = 4 // deployments of one commit
	apiRest      = 2 * time.Second

	watchedBefore = 10 // deployments that have ended, with which a watch begins
)

// measureAPI fills an agent's store with 10,000 deployments and lets 200 clients
// read, watch and follow at once while the agent deploys one commit after the
// other to the cluster. The floor is a health check on the same connection right
// after each read: what a call costs that does nothing, under the same load.
func measureAPI(ctx context.Context, e *environment) error {
	if _, err := e.client(ctx, apiNamespace); err != nil {
		return err
	}
	s, err := e.newScene(ctx, "api", agenttest.Options{Interval: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	defer s.agent.Close()
	a, err := e.archived(ctx, s.agent)
	if err != nil {
		return err
	}
	if err := s.deployOnce(ctx, 0); err != nil { // first contact
		return err
	}
	before, err := memory(s.agent.PID(), "VmRSS")
	if err != nil {
		return err
	}
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.agent.PID()), []byte("5"), 0o200); err != nil { // the peak begins anew
		return err
	}
	clients, errs, ended, err := s.serve(ctx, a, e.apiFor)
	if err != nil {
		return err
	}
	peak, err := memory(s.agent.PID(), "VmHWM")
	if err != nil {
		return err
	}
	time.Sleep(apiRest)
	after, err := memory(s.agent.PID(), "VmRSS")
	if err != nil {
		return err
	}
	e.info("api.rss_before", before, "MiB")
	e.info("api.rss_peak", peak, "MiB")
	e.info("api.rss_after", after, "MiB")
	e.reportAPI(clients, errs, ended)
	return s.agent.Close()
}

// archived stops the agent, fills its store and starts it again.
func (e *environment) archived(ctx context.Context, agent *agenttest.Agent) (archive, error) {
	if err := agent.Stop(); err != nil {
		return archive{}, err
	}
	began := time.Now()
	a, err := fillArchive(ctx, filepath.Join(e.dir, "api", "piped", "piped.db"), apiClients)
	if err != nil {
		return a, fmt.Errorf("fill the store: %w", err)
	}
	e.info("api.filling_the_store", time.Since(began).Seconds(), "s")
	return a, agent.Restart(ctx)
}

// deployOnce has the agent deploy one commit and returns when that is done.
func (s *scene) deployOnce(ctx context.Context, round int) error {
	changed, tag := map[string]string{}, fmt.Sprint("v", round)
	for i := range apiAtOnce {
		maps.Copy(changed, files(fmt.Sprint("web-", i), apiNamespace, 2, tag))
	}
	commit, err := s.push("all "+tag, changed)
	if err != nil {
		return err
	}
	for i := range apiAtOnce {
		if _, err := s.succeeded(ctx, appID(fmt.Sprint("web-", i)), commit); err != nil {
			return err
		}
	}
	return nil
}

// serve lets the clients do what they do while deployments run for d. It returns
// them, their errors and how many deployments ended.
func (s *scene) serve(ctx context.Context, a archive, d time.Duration) (clients []*apiClient, failed []error, ended int, err error) {
	run, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	errs := make([]error, len(a.keys))
	for i, key := range a.keys {
		c, err := newAPIClient(s.agent.Address, key, a)
		if err != nil {
			return nil, nil, 0, err
		}
		defer c.conn.Close()
		clients = append(clients, c)
		running.Go(func() { errs[i] = c.run(run) })
	}
	time.Sleep(apiRest) // until all are connected
	for end := time.Now().Add(d); time.Now().Before(end); ended += apiAtOnce {
		if err := s.deployOnce(ctx, 1+ended/apiAtOnce); err != nil {
			return nil, nil, 0, err
		}
	}
	time.Sleep(apiRest) // until all have been reported
	stop()
	running.Wait()
	for _, err := range errs {
		if err != nil {
			failed = append(failed, err)
		}
	}
	return clients, failed, ended, nil
}

// reportAPI prints what the clients saw. Each watch began with some
// deployments that had ended.
func (e *environment) reportAPI(clients []*apiClient, errs []error, ended int) {
	var reads, floors []time.Duration
	blocks, torn, missed := 0, 0, 0
	for _, c := range clients {
		reads, floors = append(reads, c.reads...), append(floors, c.floors...)
		blocks, torn = blocks+c.blocks, torn+c.torn
		missed += max(0, ended-(len(c.ended)-watchedBefore))
	}
	e.info("api.deployments_meanwhile", float64(ended), "")
	e.info("api.reads", float64(len(reads)), "")
	e.info("api.log_blocks", float64(blocks), "")
	e.exactly("api.errors", len(errs), 0)
	e.exactly("api.ends_not_seen", missed, 0)
	e.exactly("api.log_blocks_lost_or_repeated", torn, 0)
	e.info("api.floor.p50", milliseconds(median(floors)), "ms")
	e.info("api.floor.p99", milliseconds(quantile(floors, 0.99)), "ms")
	e.info("api.read.p50", milliseconds(median(reads)), "ms")
	e.atMost("api.read.p99", milliseconds(quantile(reads, 0.99)), "ms", 50)
	e.info("api.read.worst", milliseconds(worst(reads)), "ms")
	if len(errs) > 0 {
		fmt.Fprintln(os.Stderr, "bench: the first errors of clients:", errors.Join(errs[:min(5, len(errs))]...))
	}
}

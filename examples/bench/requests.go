package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/git/gittest"
)

const (
	watchIdleFor = 3 * time.Minute
	// mostPerHour is one request each interval, shortened by its jitter of 10 %.
	mostPerHour = 3600 / (15 * 0.9)
)

// measureRequests counts what an agent asks the Git server of a repository in
// which nothing happens, and extrapolates the rate to an hour.
func measureRequests(ctx context.Context, e *environment) (err error) {
	repo, err := e.newRepo("requests")
	if err != nil {
		return err
	}
	remote, err := gittest.ServeHTTP(repo.Dir, gittest.HTTPOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remote.Close()) }()
	agent, err := e.start(ctx, "requests", repo, agenttest.Options{Interval: defaultInterval, Remote: remote.URL})
	if err != nil {
		return err
	}
	defer agent.Close()
	err = agent.Await(ctx, "the repository to be fetched", patience, func(context.Context) (bool, error) { return remote.Packs() > 0, nil })
	if err != nil {
		return err
	}
	times, err := watchRequests(ctx, remote)
	if err != nil {
		return err
	}
	if len(times) < 2 {
		return fmt.Errorf("the agent made %d requests in %s", len(times), watchIdleFor)
	}
	interval := times[len(times)-1].Sub(times[0]) / time.Duration(len(times)-1)
	e.info("requests.seen", float64(len(times)), "in "+watchIdleFor.String())
	e.atMost("requests.per_idle_repository_and_hour", float64(time.Hour)/float64(interval), "", mostPerHour)
	return nil
}

// watchRequests returns when requests of any kind came.
func watchRequests(ctx context.Context, remote *gittest.HTTPServer) ([]time.Time, error) {
	var mu sync.Mutex
	var times []time.Time
	remote.SetFault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		mu.Lock()
		times = append(times, time.Now())
		mu.Unlock()
		next.ServeHTTP(w, r)
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(watchIdleFor):
	}
	mu.Lock()
	defer mu.Unlock()
	return times, nil
}

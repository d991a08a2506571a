package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/git/gittest"
)

// mostPerHour is one request each interval, shortened by its jitter of 10 %.
const mostPerHour = 3600 / (15 * 0.9)

// watchRequests returns how many requests of any kind the Git server of a
// repository in which nothing happens gets while d passes, and the rate of an hour.
func watchRequests(ctx context.Context, remote *gittest.HTTPServer, d time.Duration) (n int, perHour float64, err error) {
	var mu sync.Mutex
	var times []time.Time
	remote.SetFault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		mu.Lock()
		times = append(times, time.Now())
		mu.Unlock()
		next.ServeHTTP(w, r)
	})
	defer remote.SetFault(nil)
	select {
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	case <-time.After(d):
	}
	mu.Lock()
	defer mu.Unlock()
	if len(times) < 2 {
		return 0, 0, fmt.Errorf("the agent made %d requests in %s", len(times), d)
	}
	interval := times[len(times)-1].Sub(times[0]) / time.Duration(len(times)-1)
	return len(times), float64(time.Hour) / float64(interval), nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

const firstNamespace = "bench-first"

// firstCalls remembers when the first requests of a round came that are about an
// object of the application.
type firstCalls struct {
	mu         sync.Mutex
	any, write time.Time
}

func (f *firstCalls) saw(r *http.Request) {
	now := time.Now()
	if !strings.Contains(r.URL.Path, "/namespaces/"+firstNamespace+"/") {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.any.IsZero() {
		f.any = now
	}
	if f.write.IsZero() && r.Method != http.MethodGet {
		f.write = now
	}
}

// take returns the times and forgets them.
func (f *firstCalls) take() (first, write time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first, write = f.any, f.write
	f.any, f.write = time.Time{}, time.Time{}
	return first, write
}

// measureFirstCall measures from the moment a deployment is stored as PENDING to
// its first request at the API server, which reads, and to the first that writes,
// a dry run. The target is that of the writing one.
func measureFirstCall(ctx context.Context, e *environment) (err error) {
	if _, err := e.client(ctx, firstNamespace); err != nil {
		return err
	}
	var calls firstCalls
	proxy, err := agenttest.ServeAPI(e.cluster.Kubeconfig(), calls.saw)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, proxy.Close()) }()
	kubeconfig, err := proxy.Kubeconfig(e.dir)
	if err != nil {
		return err
	}
	s, err := e.newScene(ctx, "first", agenttest.Options{Interval: 50 * time.Millisecond, Kubeconfig: kubeconfig})
	if err != nil {
		return err
	}
	defer s.agent.Close()
	var started, reads, writes []time.Duration
	for i := range rounds {
		tag := fmt.Sprintf("v%d", i)
		commit, err := s.push("web "+tag, files("web", firstNamespace, 3, tag))
		if err != nil {
			return err
		}
		d, err := s.succeeded(ctx, appID("web"), commit)
		if err != nil {
			return err
		}
		whole, err := s.agent.API.GetDeployment(ctx, &apiservice.GetDeploymentRequest{DeploymentId: d.GetId()})
		if err != nil {
			return err
		}
		moves := whole.GetDeployment().GetTransitions()
		pending := time.UnixMilli(moves[0].GetAtMs())
		first, write := calls.take()
		if i == 0 {
			continue // first contact: connections, discovery and informers
		}
		started, reads, writes = append(started, startOf(moves).Sub(pending)), append(reads, first.Sub(pending)), append(writes, write.Sub(pending))
	}
	e.info("first.pending_to_running.p50", milliseconds(median(started)), "ms")
	e.info("first.pending_to_first_read.p50", milliseconds(median(reads)), "ms")
	e.atMost("first.pending_to_first_api_call.p50", milliseconds(median(writes)), "ms", 20)
	e.info("first.pending_to_first_api_call.worst", milliseconds(worst(writes)), "ms")
	return nil
}

// startOf returns when a deployment's first stage began.
func startOf(moves []*modelv1.Transition) time.Time {
	for _, m := range moves {
		if m.GetTo() == modelv1.StageStatus_STAGE_RUNNING.String() {
			return time.UnixMilli(m.GetAtMs())
		}
	}
	return time.Time{}
}

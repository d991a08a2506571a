package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

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
// a dry run. The target is that of the writing one. Its floor is the time in which
// client-go reads the same three objects at once by the same way.
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
	client, err := clientOf(kubeconfig)
	if err != nil {
		return err
	}
	var floors, started, reads, writes []time.Duration
	for i := range rounds {
		t, err := s.firstRound(ctx, client, &calls, fmt.Sprintf("v%d", i))
		if err != nil {
			return err
		}
		if i == 0 {
			continue // first contact: connections, discovery and informers
		}
		floors, started, reads, writes = append(floors, t.floor), append(started, t.started), append(reads, t.read), append(writes, t.write)
	}
	e.info("first.floor.p50", milliseconds(median(floors)), "ms")
	e.info("first.pending_to_running.p50", milliseconds(median(started)), "ms")
	e.info("first.pending_to_first_read.p50", milliseconds(median(reads)), "ms")
	e.atMost("first.pending_to_first_api_call.p50", milliseconds(median(writes)), "ms", 20)
	e.info("first.pending_to_first_api_call.worst", milliseconds(worst(writes)), "ms")
	return nil
}

// firstTimes are those of one deployment, since it became PENDING.
type firstTimes struct{ floor, started, read, write time.Duration }

// firstRound deploys one commit, and then measures the floor.
func (s *scene) firstRound(ctx context.Context, client kubernetes.Interface, calls *firstCalls, tag string) (t firstTimes, err error) {
	commit, err := s.push("web "+tag, files("web", firstNamespace, 3, tag))
	if err != nil {
		return t, err
	}
	d, err := s.succeeded(ctx, appID("web"), commit)
	if err != nil {
		return t, err
	}
	whole, err := s.agent.API.GetDeployment(ctx, &apiservice.GetDeploymentRequest{DeploymentId: d.GetId()})
	if err != nil {
		return t, err
	}
	read, write := calls.take()
	moves := whole.GetDeployment().GetTransitions()
	pending := time.UnixMilli(moves[0].GetAtMs())
	t = firstTimes{started: startOf(moves).Sub(pending), read: read.Sub(pending), write: write.Sub(pending)}
	t.floor, err = readAll(ctx, client)
	calls.take()
	return t, err
}

// readAll returns how long it takes to read the application's objects at once.
func readAll(ctx context.Context, client kubernetes.Interface) (time.Duration, error) {
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		_, err := client.AppsV1().Deployments(firstNamespace).Get(ctx, "web", metav1.GetOptions{})
		return err
	})
	group.Go(func() error {
		_, err := client.CoreV1().ConfigMaps(firstNamespace).Get(ctx, "web", metav1.GetOptions{})
		return err
	})
	group.Go(func() error {
		_, err := client.CoreV1().Services(firstNamespace).Get(ctx, "web", metav1.GetOptions{})
		return err
	})
	err := group.Wait()
	return time.Since(began), err
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

package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// receiver counts notifications.
type receiver struct {
	server *http.Server

	mu    sync.Mutex
	ends  map[string]map[string]string // by deployment: the events of its end by delivery key
	keys  map[string]bool
	again int // notifications that arrived again
}

func listen(address string) (*receiver, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	r := &receiver{ends: map[string]map[string]string{}, keys: map[string]bool{}}
	r.server = &http.Server{Handler: r}
	go func() { _ = r.server.Serve(l) }() // until close
	return r, nil
}

func (r *receiver) close() error { return r.server.Close() }

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var m struct {
		Metadata struct {
			Deployment struct {
				ID string `json:"id"`
			} `json:"deployment"`
		}
	}
	if err := json.NewDecoder(request.Body).Decode(&m); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := request.Header.Get("Piped-Delivery")
	if r.keys[key] {
		r.again++
	}
	r.keys[key] = true
	switch event := request.Header.Get("Piped-Event"); event {
	case "DEPLOYMENT_SUCCEEDED", "DEPLOYMENT_FAILED", "DEPLOYMENT_CANCELLED":
		id := m.Metadata.Deployment.ID
		if r.ends[id] == nil {
			r.ends[id] = map[string]string{}
		}
		r.ends[id][key] = event
	}
}

// cluster records the rollouts of Deployments, as the API server and its controllers report them.
type cluster struct {
	stop    context.CancelFunc
	factory informers.SharedInformerFactory

	mu          sync.Mutex
	revisions   map[string]int64                      // by Deployment: how many its controller counted
	replicaSets map[string]map[string]map[string]bool // by Deployment and revision of the template: UIDs
}

func watchCluster(ctx context.Context, kubeconfig, namespace string) (*cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	c := &cluster{stop: stop, revisions: map[string]int64{}, replicaSets: map[string]map[string]map[string]bool{}}
	c.factory = informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	for _, i := range []cache.SharedIndexInformer{c.factory.Apps().V1().Deployments().Informer(), c.factory.Apps().V1().ReplicaSets().Informer()} {
		if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: c.see, UpdateFunc: func(_, o any) { c.see(o) }}); err != nil {
			stop()
			return nil, err
		}
	}
	c.factory.Start(ctx.Done())
	return c, nil
}

func (c *cluster) close() {
	c.stop()
	c.factory.Shutdown()
}

func (c *cluster) see(o any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch o := o.(type) {
	case *appsv1.Deployment:
		if n, err := strconv.ParseInt(o.Annotations["deployment.kubernetes.io/revision"], 10, 64); err == nil {
			c.revisions[o.Name] = max(c.revisions[o.Name], n)
		}
	case *appsv1.ReplicaSet:
		owner := metav1.GetControllerOf(o)
		if owner == nil {
			return
		}
		if c.replicaSets[owner.Name] == nil {
			c.replicaSets[owner.Name] = map[string]map[string]bool{}
		}
		revision := o.Spec.Template.Annotations["revision"]
		if c.replicaSets[owner.Name][revision] == nil {
			c.replicaSets[owner.Name][revision] = map[string]bool{}
		}
		c.replicaSets[owner.Name][revision][string(o.UID)] = true
	}
}

// runs is what the file of the scripts says.
type runs struct {
	starts   map[string]int // by deployment and script
	overlaps int            // deployments whose script ran on after its undoing had begun
}

// readRuns reads the lines that scripts have written: deployment, word, and for some the time.
func readRuns(file string) (runs, error) {
	r := runs{starts: map[string]int{}}
	text, err := os.ReadFile(file)
	if err != nil {
		return r, err
	}
	lastTick, undone := map[string]int64{}, map[string]int64{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		id, word := fields[0], fields[1]
		var at int64
		if len(fields) > 2 {
			at, _ = strconv.ParseInt(fields[2], 10, 64)
		}
		switch word {
		case "tick":
			lastTick[id] = max(lastTick[id], at)
			continue
		case "undo":
			undone[id] = at
		}
		r.starts[id+" "+word]++
	}
	for id, at := range undone {
		if lastTick[id] > at {
			r.overlaps++
		}
	}
	return r, nil
}

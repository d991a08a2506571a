package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// component is one child process of the cluster.
type component struct {
	name   string
	port   int
	args   []string
	health string // answers 200 when the component is ready
}

// componentNames lists the components in the order they start.
func componentNames() []string {
	return []string{"etcd", "apiserver", "controller-manager", "scheduler", "kwok", "writers"}
}

func componentList() string { return strings.Join(componentNames(), ", ") }

// components returns every component of the cluster in d, in starting order.
func components(d dir, p ports, o options) []component {
	args := map[string][]string{
		"etcd":               etcdArgs(d, p),
		"apiserver":          apiserverArgs(d, p),
		"controller-manager": controllerManagerArgs(d, p),
		"scheduler":          schedulerArgs(d, p),
		"kwok":               kwokArgs(d, p),
		"writers":            writersArgs(d, p, o),
	}
	health := map[string]string{
		"etcd": "http://127.0.0.1:%d/health", "apiserver": "https://127.0.0.1:%d/readyz",
		"controller-manager": "https://127.0.0.1:%d/healthz", "scheduler": "https://127.0.0.1:%d/healthz",
		"kwok": "https://127.0.0.1:%d/healthz", "writers": "http://127.0.0.1:%d/healthz",
	}
	var all []component
	for _, name := range componentNames() {
		all = append(all, component{name: name, port: p[name], args: args[name], health: fmt.Sprintf(health[name], p[name])})
	}
	return all
}

func etcdArgs(d dir, p ports) []string {
	return []string{d.path("data", "etcd"), strconv.Itoa(p["etcd"]), strconv.Itoa(p["etcd-peer"])}
}

// servingArgs are common to the Kubernetes components.
func servingArgs(d dir, port int) []string {
	return []string{
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + d.path("certs", "server.crt"),
		"--tls-private-key-file=" + d.path("certs", "server.key"),
		"--profiling=false",
	}
}

func apiserverArgs(d dir, p ports) []string {
	return append(servingArgs(d, p["apiserver"]),
		"--etcd-servers=http://127.0.0.1:"+strconv.Itoa(p["etcd"]),
		"--client-ca-file="+d.path("certs", "ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+d.path("certs", "sa.pub"),
		"--service-account-signing-key-file="+d.path("certs", "sa.key"),
		"--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=RBAC",
		// Nobody connects to it; unset, it would need a network beyond the
		// loopback interface, which may not be announced.
		"--advertise-address=10.250.255.254",
		"--endpoint-reconciler-type=none",
		"--kubelet-preferred-address-types=ExternalIP",
		"--max-requests-inflight=3000",
		"--max-mutating-requests-inflight=1000",
		// Its clients are one machine's: nothing to share out between them, and no network
		// that would be slower than compression.
		"--enable-priority-and-fairness=false",
		"--feature-gates=APIResponseCompression=false",
	)
}

// controllerManagerArgs use the admin certificate for all controllers: with a
// credential each, they take seconds longer to begin. Left out is the
// autoscaler, whose part the writers play, and what polls for hardware.
func controllerManagerArgs(d dir, p ports) []string {
	return append(servingArgs(d, p["controller-manager"]),
		"--kubeconfig="+d.kubeconfig(),
		"--service-account-private-key-file="+d.path("certs", "sa.key"),
		"--root-ca-file="+d.path("certs", "ca.crt"),
		"--leader-elect=false",
		"--kube-api-qps=200",
		"--kube-api-burst=400",
		"--node-monitor-period=5s",
		"--node-monitor-grace-period=5m",
		"--controllers=*,"+
			"-horizontal-pod-autoscaler-controller,"+
			"-persistentvolume-attach-detach-controller,"+
			"-persistentvolume-expander-controller,"+
			"-node-ipam-controller",
	)
}

func schedulerArgs(d dir, p ports) []string {
	return append(servingArgs(d, p["scheduler"]),
		"--kubeconfig="+d.kubeconfig(),
		"--leader-elect=false",
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
	)
}

func kwokArgs(d dir, p ports) []string {
	return []string{
		strconv.Itoa(p["kwok"]), d.path("certs", "server.crt"), d.path("certs", "server.key"),
		d.path("data", "stages.yaml"), d.kubeconfig(),
	}
}

func writersArgs(d dir, p ports, o options) []string {
	mode := o.routeStatus
	if o.routeStatusStale && mode == "accept" {
		mode = "stale"
	}
	return []string{strconv.Itoa(p["writers"]), d.kubeconfig(), mode, o.routeStatusDelay.String()}
}

// check asks the component once whether it is ready.
func (c component) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.health, nil)
	if err != nil {
		return fmt.Errorf("asking %s for its health: %w", c.name, err)
	}
	// The question is only whether our child answers on its loopback port, and
	// no secret goes with it: the certificate need not be checked.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return fmt.Errorf("asking %s for its health: %w", c.name, err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s is not ready: %s answers %s", c.name, c.health, resp.Status)
	}
	return nil
}

// known reports a component name that does not exist together with those that do.
func known(name string) error {
	if !slices.Contains(componentNames(), name) {
		return fmt.Errorf("there is no component %q; choose one of %s", name, componentList())
	}
	return nil
}

package cluster

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// TestIdentity: platform providers for the same cluster have the same identity, whatever
// address they use. Where the agent may not read the namespace kube-system, the identity
// is that of another provider with the same address, or else the address. The agent reads
// it without impersonation, at limited intervals.
func TestIdentity(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{} // by user agent
	serve := func(uid string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			asked[r.UserAgent()]++
			mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			if r.URL.Path != "/api/v1/namespaces/kube-system" || r.UserAgent() == "limited" || r.Header.Get("Impersonate-User") != "" {
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
				return
			}
			fmt.Fprintf(w, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"kube-system","uid":%q}}`, uid)
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	var all Identities
	connect := func(url, agent string, known *Identities) *Cluster {
		c, err := NewCluster(ClusterConfig{Name: agent, MasterURL: url, UserAgent: agent, Identities: known})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	identity := func(c *Cluster) string {
		id, err := c.Identity(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	one, two := serve("uid-1"), serve("uid-2")
	first := connect(one, "first", &all)
	tenant, err := first.As("system:serviceaccount:team:deployer")
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]*Cluster{
		"a provider": first, "again": first, "in another name": tenant,
		"another address":   connect(strings.Replace(one, "127.0.0.1", "localhost", 1), "second", &all),
		"without the right": connect(one+"/", "limited", &all),
	} {
		if got := identity(c); got != "uid-1" {
			t.Errorf("%s: %s", what, got)
		}
	}
	if asked["first"] != 1 {
		t.Errorf("the first provider asked %d times", asked["first"])
	}
	if got := identity(connect(two, "other", &all)); got != "uid-2" {
		t.Errorf("another cluster: %s", got)
	}
	var limited Identities
	a, b, c := identity(connect(one, "limited", &limited)), identity(connect(one+"/", "limited", &limited)), identity(connect(two, "limited", &limited))
	if a != b || a == c || !strings.HasPrefix(a, "address-") {
		t.Errorf("without the right the identities are %s, %s and, of another cluster, %s", a, b, c)
	}
}

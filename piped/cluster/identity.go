package cluster

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// identityFresh is how long a cluster's identity is cached.
const identityFresh = 5 * time.Minute

var namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// Identities is the set of an agent's clusters, by which Cluster.Identity recognises two
// platform providers of the same cluster. The zero value is ready to use.
type Identities struct {
	mu  sync.Mutex
	all map[*identity]bool
}

// identity is the identity of one Cluster, shared by its impersonating clients.
type identity struct {
	cluster *Cluster // does not impersonate: tenants may not read kube-system
	others  *Identities
	address string // digest of the API server's address and authority (addressOf)

	mu   sync.Mutex
	uid  string    // of the namespace kube-system; "" if the agent may not read it
	good time.Time // when the cached uid expires
}

func newIdentity(c *Cluster, others *Identities) *identity {
	i := &identity{cluster: c, others: others, address: addressOf(c.config)}
	others.mu.Lock()
	defer others.mu.Unlock()
	if others.all == nil {
		others.all = map[*identity]bool{}
	}
	others.all[i] = true
	return i
}

func (i *identity) forget() {
	i.others.mu.Lock()
	defer i.others.mu.Unlock()
	delete(i.others.all, i)
}

// Identity returns an identifier of the cluster that is the same for all its platform
// providers: the UID of its namespace kube-system. If the agent may not read that namespace,
// Identity tries the credentials of the other providers with the same address and certificate
// authority. If none of them may, it returns a digest of address and authority.
func (c *Cluster) Identity(ctx context.Context) (string, error) {
	uid, err := c.identity.read(ctx)
	if err != nil {
		return "", c.Classify(fmt.Errorf("read namespace %s, by which the cluster is identified: %w", metav1.NamespaceSystem, err))
	}
	for _, other := range c.identity.neighbours() {
		if uid == "" {
			uid, _ = other.read(ctx) // its credentials may be refused as well
		}
	}
	return cmp.Or(uid, c.identity.address), nil
}

// neighbours returns the other clusters with the same address and certificate authority.
func (i *identity) neighbours() (out []*identity) {
	i.others.mu.Lock()
	defer i.others.mu.Unlock()
	for other := range i.others.all {
		if other != i && other.address == i.address {
			out = append(out, other)
		}
	}
	return out
}

// read returns the UID of the namespace kube-system, cached for identityFresh; "" if the
// agent may not read the namespace or it does not exist.
func (i *identity) read(ctx context.Context) (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.cluster.now().Before(i.good) {
		return i.uid, nil
	}
	uid := ""
	err := i.cluster.Retry(ctx, nil, func(ctx context.Context) error {
		live, err := i.cluster.metadata.Resource(namespaceResource).Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err == nil {
			uid = string(live.UID)
		}
		return err
	})
	if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		return "", err
	}
	i.uid, i.good = uid, i.cluster.now().Add(identityFresh)
	return uid, nil
}

// addressOf returns a digest of the API server's address and certificate authority.
func addressOf(config *rest.Config) string {
	host := strings.ToLower(strings.TrimSuffix(config.Host, "/"))
	if u, _, err := rest.DefaultServerUrlFor(config); err == nil {
		host = strings.ToLower(u.Scheme+"://"+u.Hostname()+":"+portOf(u)) + strings.TrimSuffix(u.Path, "/")
	}
	authority := config.CAData
	if len(authority) == 0 && config.CAFile != "" {
		authority, _ = os.ReadFile(config.CAFile) // an unreadable file fails the requests
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s", host, strings.TrimSpace(string(authority))))
	return "address-" + hex.EncodeToString(sum[:16])
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "http":
		return "80"
	}
	return "443"
}

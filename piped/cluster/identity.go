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

// identityFresh is how long an answer about a cluster's identity is good for.
const identityFresh = 5 * time.Minute

var namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// Identities finds out which clusters of an agent are one and the same. Clusters that are
// made with the same Identities know of one another. The zero value is ready to use.
type Identities struct {
	mu  sync.Mutex
	all map[*identity]bool
}

// identity is what one Cluster, in all names, knows of its own.
type identity struct {
	cluster *Cluster // in the agent's own name: tenants may not read kube-system
	others  *Identities
	address string // of the API server and its certificate authority

	mu   sync.Mutex
	uid  string    // of the namespace kube-system; "" if the agent may not read it
	good time.Time // until when uid is
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

// Identity returns what the cluster is known by, whatever platform provider names it: the
// UID of its namespace kube-system. Where the agent may not read that, another of its
// clusters with the same address and certificate authority is asked; if none may, the
// identity is a digest of address and authority.
func (c *Cluster) Identity(ctx context.Context) (string, error) {
	uid, err := c.identity.read(ctx)
	if err != nil {
		return "", c.Classify(fmt.Errorf("read namespace %s, by which the cluster is identified: %w", metav1.NamespaceSystem, err))
	}
	for _, other := range c.identity.neighbours() {
		if uid == "" {
			uid, _ = other.read(ctx) // its credentials may be of no use
		}
	}
	return cmp.Or(uid, c.identity.address), nil
}

// neighbours returns the clusters at the same address.
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

// read returns the UID of the namespace kube-system, "" if the agent may not read it or
// there is none.
func (i *identity) read(ctx context.Context) (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.cluster.now().Before(i.good) {
		return i.uid, nil
	}
	uid := ""
	err := i.cluster.retry(ctx, nil, func(ctx context.Context) error {
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

// addressOf returns a digest of where the API server is and of the authority that its
// certificate is of.
func addressOf(config *rest.Config) string {
	host := strings.ToLower(strings.TrimSuffix(config.Host, "/"))
	if u, _, err := rest.DefaultServerUrlFor(config); err == nil {
		host = strings.ToLower(u.Scheme+"://"+u.Hostname()+":"+portOf(u)) + strings.TrimSuffix(u.Path, "/")
	}
	authority := config.CAData
	if len(authority) == 0 && config.CAFile != "" {
		authority, _ = os.ReadFile(config.CAFile) // what cannot be read fails the requests
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

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	apidiscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/c785c783/piped/piped/deploy"
)

// FieldManager is the agent's field manager in managedFields.
const FieldManager = "piped"

// ClusterConfig configures the access to one cluster. Only Name is required.
type ClusterConfig struct {
	Name           string // the platform provider's name
	KubeConfigPath string // "" uses the service account of the pod the agent runs in
	Context        string // of the kubeconfig; "" is its current context
	MasterURL      string // replaces the address in the kubeconfig

	// QPS and Burst limit requests on the client side. Without QPS only the API server's
	// priority and fairness limits them.
	QPS   float32
	Burst int

	// RetryFor is how long a call is retried while the cluster does not answer. Default two
	// minutes.
	RetryFor time.Duration

	// UserAgent is "piped" by default, Logger discards, and Now is time.Now.
	UserAgent string
	Logger    *slog.Logger
	Now       func() time.Time

	// InCluster returns the configuration that is used without KubeConfigPath and
	// MasterURL. Default rest.InClusterConfig: the API server in the environment of the
	// agent's pod, and the token of its service account, which is reloaded.
	InCluster func() (*rest.Config, error)

	// Permit, when set, is called before each request that writes to the cluster. The
	// request is not sent if Permit returns an error; Retry and RetryWrite then wait until
	// it returns nil.
	Permit func(ctx context.Context) error

	// Identities is shared by all clusters of an agent, so that Identity recognises two
	// platform providers of the same cluster. Nil shares with no other cluster.
	Identities *Identities

	// WrapTransport, when set, wraps the transport of all requests to the cluster.
	WrapTransport func(http.RoundTripper) http.RoundTripper
}

// Cluster is the agent's access to one Kubernetes cluster. It is safe for concurrent use.
// All its clients share one transport.
type Cluster struct {
	name      string
	user      string // impersonated by the requests; "" for none
	config    *rest.Config
	http      *http.Client
	typed     *Typed
	dynamic   dynamic.Interface
	metadata  metadata.Interface
	discovery *discovery
	contact   *contact
	fence     *fence
	identity  *identity
	retryFor  time.Duration
	log       *slog.Logger
	now       func() time.Time
}

// NewCluster returns a client of a cluster. It sends no request, so an unreachable cluster
// only fails later calls. Errors are of kind Invalid: the configuration must be changed.
func NewCluster(cfg ClusterConfig) (*Cluster, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Logger = cfg.Logger.With("cluster", cfg.Name)
	if cfg.InCluster == nil {
		cfg.InCluster = rest.InClusterConfig
	}
	rc, err := restConfig(cfg)
	if err != nil {
		return nil, err
	}
	c := &Cluster{name: cfg.Name, config: rc, log: cfg.Logger, now: cfg.Now, retryFor: cfg.RetryFor}
	if c.retryFor == 0 {
		c.retryFor = retryFor
	}
	if c.now == nil {
		c.now = time.Now
	}
	c.contact, c.fence = &contact{now: c.now}, &fence{permit: cfg.Permit}
	c.config.Wrap(c.contact.wrap)
	c.config.Wrap(c.fence.wrap) // outside of contact: a request that is not sent is no outage
	if err := c.connect(); err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "prepare access to cluster %q: %w", cfg.Name, err)
	}
	c.identity = newIdentity(c, cmp.Or(cfg.Identities, &Identities{}))
	return c, nil
}

// connect creates the HTTP client, the discovery and the clients of objects. It sends no
// request.
func (c *Cluster) connect() error {
	client, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return err
	}
	kinds, err := apidiscovery.NewDiscoveryClientForConfigAndClient(c.config, client)
	if err != nil {
		return err
	}
	c.discovery = newDiscovery(kinds, c.now)
	return c.makeClients(client)
}

// makeClients creates the typed, dynamic and metadata clients, which send by client.
func (c *Cluster) makeClients(client *http.Client) error {
	typed, err := newTyped(asProtobuf(c.config), client)
	if err != nil {
		return err
	}
	dyn, err := dynamic.NewForConfigAndClient(c.config, client)
	if err != nil {
		return err
	}
	meta, err := metadata.NewForConfigAndClient(metadata.ConfigFor(c.config), client)
	if err != nil {
		return err
	}
	c.http, c.typed, c.dynamic, c.metadata = client, typed, dyn, meta
	return nil
}

// asProtobuf returns a copy of rc that encodes typed objects as protobuf, which takes about
// half the CPU of JSON. Kinds without a protobuf form are returned as JSON.
func asProtobuf(rc *rest.Config) *rest.Config {
	rc = rest.CopyConfig(rc)
	rc.ContentType = "application/vnd.kubernetes.protobuf"
	rc.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return rc
}

func restConfig(cfg ClusterConfig) (*rest.Config, error) {
	rc, err := loadConfig(cfg)
	if err != nil {
		return nil, err
	}
	rc.QPS, rc.Burst = cfg.QPS, cfg.Burst
	if cfg.QPS == 0 {
		rc.QPS = -1 // no limit on our side
	}
	rc.UserAgent = cmp.Or(cfg.UserAgent, "piped")
	rc.WarningHandlerWithContext = warnings{log: cfg.Logger}
	if cfg.WrapTransport != nil {
		rc.Wrap(cfg.WrapTransport)
	}
	return rc, nil
}

func loadConfig(cfg ClusterConfig) (*rest.Config, error) {
	if cfg.KubeConfigPath == "" && cfg.MasterURL == "" {
		rc, err := cfg.InCluster()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, deploy.Errorf(deploy.Invalid,
				"platform provider %q has no kubeConfigPath and the agent does not run inside a cluster: set platformProviders[].config.kubeConfigPath", cfg.Name)
		}
		if err != nil {
			return nil, deploy.Errorf(deploy.Invalid, "use the pod's service account for platform provider %q: %w", cfg.Name, err)
		}
		return rc, nil
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: cfg.KubeConfigPath}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: cfg.Context}
	overrides.ClusterInfo.Server = cfg.MasterURL
	rc, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "read kubeconfig %s of platform provider %q: %w", cfg.KubeConfigPath, cfg.Name, err)
	}
	return rc, nil
}

// Name returns the platform provider's name.
func (c *Cluster) Name() string { return c.name }

// Typed returns the clients for built-in kinds. They use protobuf.
func (c *Cluster) Typed() *Typed { return c.typed }

// Dynamic returns the client for objects of any kind.
func (c *Cluster) Dynamic() dynamic.Interface { return c.dynamic }

// Metadata returns the client for the metadata of objects of any kind.
func (c *Cluster) Metadata() metadata.Interface { return c.metadata }

// ResourceClient returns the dynamic client for objects of a kind in a namespace, which is
// ignored if the kind is cluster-scoped.
func (c *Cluster) ResourceClient(r ServedKind, namespace string) dynamic.ResourceInterface {
	if !r.Namespaced {
		return c.dynamic.Resource(r.GroupVersionResource)
	}
	return c.dynamic.Resource(r.GroupVersionResource).Namespace(namespace)
}

// MetadataClient is ResourceClient for the metadata of objects.
func (c *Cluster) MetadataClient(r ServedKind, namespace string) metadata.ResourceInterface {
	if !r.Namespaced {
		return c.metadata.Resource(r.GroupVersionResource)
	}
	return c.metadata.Resource(r.GroupVersionResource).Namespace(namespace)
}

// RESTConfig returns a copy of the configuration that the clients use.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }

// Logger returns the logger. Each of its records has the attribute "cluster".
func (c *Cluster) Logger() *slog.Logger { return c.log }

// Now returns the time of the agent's clock (ClusterConfig.Now).
func (c *Cluster) Now() time.Time { return c.now() }

// WithRetryFor returns a copy of c whose ClusterConfig.RetryFor is d, but at most that of c.
// It shares the clients of c and needs no Close.
func (c *Cluster) WithRetryFor(d time.Duration) *Cluster {
	with := *c
	with.retryFor = min(c.retryFor, d)
	return &with
}

// Close removes the cluster from its Identities and closes idle connections. Running calls
// continue until their contexts end.
func (c *Cluster) Close() {
	c.identity.forget()
	utilnet.CloseIdleConnectionsFor(c.http.Transport)
}

// String returns the cluster's name and address.
func (c *Cluster) String() string { return fmt.Sprintf("cluster %q (%s)", c.name, c.config.Host) }

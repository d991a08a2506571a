package cluster

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	autoscalingv1 "k8s.io/client-go/kubernetes/typed/autoscaling/v1"
	batchv1 "k8s.io/client-go/kubernetes/typed/batch/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryv1 "k8s.io/client-go/kubernetes/typed/discovery/v1"
	storagev1 "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/rest"
)

// Typed holds the clients of the API groups that the agent uses as Go types. Its methods have
// the names of client-go's clientset, which is not used because it links all groups: that
// would be a tenth of the binary.
type Typed struct {
	core        *corev1.CoreV1Client
	apps        *appsv1.AppsV1Client
	autoscaling *autoscalingv1.AutoscalingV1Client
	batch       *batchv1.BatchV1Client
	coordinate  *coordinationv1.CoordinationV1Client
	discovery   *discoveryv1.DiscoveryV1Client
	storage     *storagev1.StorageV1Client
}

func newTyped(config *rest.Config, client *http.Client) (t *Typed, err error) {
	t = &Typed{}
	for _, connect := range []func() error{
		func() error { t.core, err = corev1.NewForConfigAndClient(config, client); return err },
		func() error { t.apps, err = appsv1.NewForConfigAndClient(config, client); return err },
		func() error { t.autoscaling, err = autoscalingv1.NewForConfigAndClient(config, client); return err },
		func() error { t.batch, err = batchv1.NewForConfigAndClient(config, client); return err },
		func() error { t.coordinate, err = coordinationv1.NewForConfigAndClient(config, client); return err },
		func() error { t.discovery, err = discoveryv1.NewForConfigAndClient(config, client); return err },
		func() error { t.storage, err = storagev1.NewForConfigAndClient(config, client); return err },
	} {
		if err := connect(); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// CoreV1 returns the client of the core group.
func (t *Typed) CoreV1() corev1.CoreV1Interface { return t.core }

// AppsV1 returns the client of the group apps.
func (t *Typed) AppsV1() appsv1.AppsV1Interface { return t.apps }

// AutoscalingV1 returns the client of the group autoscaling.
func (t *Typed) AutoscalingV1() autoscalingv1.AutoscalingV1Interface { return t.autoscaling }

// BatchV1 returns the client of the group batch.
func (t *Typed) BatchV1() batchv1.BatchV1Interface { return t.batch }

// CoordinationV1 returns the client of the group coordination.k8s.io.
func (t *Typed) CoordinationV1() coordinationv1.CoordinationV1Interface { return t.coordinate }

// DiscoveryV1 returns the client of the group discovery.k8s.io.
func (t *Typed) DiscoveryV1() discoveryv1.DiscoveryV1Interface { return t.discovery }

// StorageV1 returns the client of the group storage.k8s.io.
func (t *Typed) StorageV1() storagev1.StorageV1Interface { return t.storage }

// GroupClient returns a REST client for one version of an API group of built-in kinds. It
// uses protobuf.
func (c *Cluster) GroupClient(gv schema.GroupVersion) (rest.Interface, error) {
	config := asProtobuf(c.config)
	config.GroupVersion, config.NegotiatedSerializer = &gv, scheme.Codecs.WithoutConversion()
	config.APIPath = "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	return rest.RESTClientForConfigAndClient(config, c.http)
}

package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/traffic"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// refusalStands is how long a gateway must refuse a route until the stage fails. The
// gateway may evaluate the route before it observes a Service that was just created.
const refusalStands = 2 * time.Second

// defaultVerifyTimeout is the time limit for routing methods without the setting
// verify.timeout.
const defaultVerifyTimeout = 30 * time.Second

// verifyTimeout returns the time limit for routes and variants to become ready.
func verifyTimeout(r traffic.Routing) time.Duration {
	if r.Gateway() && r.Route != nil {
		return r.Route.Verify.Timeout
	}
	return defaultVerifyTimeout
}

// poll calls check until it returns no reason to wait or the time limit is over, and
// returns the last reason. It logs each new reason. If the cluster is unavailable it tries
// again.
func (w *work) poll(ctx context.Context, limit time.Duration, check func(ctx context.Context) (why string, err error)) (string, error) {
	end := time.NewTimer(limit)
	defer end.Stop()
	pauses := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 1.5, Jitter: 0.1, Steps: 1 << 20, Cap: time.Second}
	logged := ""
	for {
		why, err := check(ctx)
		if err != nil && ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		if deploy.IsKind(err, deploy.Unavailable) {
			why, err = err.Error(), nil
		}
		if err != nil || why == "" {
			return "", err
		}
		if why != logged {
			w.log.Infof("Waiting: %s", why)
			logged = why
		}
		next := time.NewTimer(pauses.Step())
		select {
		case <-next.C:
		case <-end.C:
			next.Stop()
			return why, nil
		case <-ctx.Done():
			next.Stop()
			return "", fmt.Errorf("%w while waiting: %s", context.Cause(ctx), why)
		}
	}
}

// verifyRoutes waits until every gateway has accepted the present version of each route.
// Otherwise it returns a stageError that names the route and the reason.
func (w *work) verifyRoutes(ctx context.Context, r traffic.Routing, routes []manifest.Object) error {
	limit := verifyTimeout(r)
	for _, route := range routes {
		check := routeCheck{work: w, route: route}
		why, err := w.poll(ctx, limit, check.evaluate)
		if err != nil {
			return err
		}
		if why != "" {
			return &stageError{reason: fmt.Sprintf("%s; it was not accepted within %s (spec.trafficRouting.httpRoute.verify.timeout)", why, limit)}
		}
	}
	return nil
}

// previewRouteTimeout is how long a gateway may take to accept the routes of a preview.
const previewRouteTimeout = 5 * time.Minute

// acceptRoutes waits until every gateway has accepted the routes of a preview, which is announced when
// the deployment ends. It returns a stageError if one is refused, or not accepted in time.
func acceptRoutes(ctx context.Context, w *work) error {
	if w.run.Deployment.Git.PullRequest == 0 {
		return nil
	}
	for _, o := range w.set.Objects {
		check := routeCheck{work: w, route: o}
		switch kind := o.GroupVersionKind(); {
		case kind.Group == traffic.GatewayGroup && strings.HasSuffix(kind.Kind, "Route"):
		case kind.Group == traffic.IstioGroup && kind.Kind == "VirtualService":
			check.verdict = w.virtualServiceVerdict
		default:
			continue
		}
		why, err := w.poll(ctx, previewRouteTimeout, check.evaluate)
		if err != nil {
			return err
		}
		if why != "" {
			return &stageError{reason: fmt.Sprintf("%s; it was not accepted within %s", why, previewRouteTimeout)}
		}
	}
	return nil
}

// virtualServiceVerdict evaluates a live VirtualService with its Gateways.
func (w *work) virtualServiceVerdict(ctx context.Context, live *unstructured.Unstructured) (traffic.Verdict, error) {
	var gateways []unstructured.Unstructured
	for _, id := range traffic.GatewaysOf(live) {
		gateway := &unstructured.Unstructured{}
		gateway.SetGroupVersionKind(live.GroupVersionKind().GroupVersion().WithKind("Gateway"))
		gateway.SetNamespace(id[0])
		gateway.SetName(id[1])
		found, err := w.read(ctx, manifest.Object{Unstructured: gateway})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return traffic.Verdict{}, fmt.Errorf("read its Gateway %s/%s: %w", id[0], id[1], w.cluster.Classify(err))
		}
		gateways = append(gateways, *found)
	}
	return traffic.EvaluateVirtualService(live, gateways), nil
}

// routeCheck evaluates whether one route is in force.
type routeCheck struct {
	*work
	route    manifest.Object
	refused  time.Time // start of the refusal, by the monotonic clock; zero: not refused
	reported bool      // whether another field manager of the route was logged
	// verdict evaluates the live route; nil for the status of a route of the Gateway API.
	verdict func(ctx context.Context, live *unstructured.Unstructured) (traffic.Verdict, error)
}

// evaluate explains why the route is not in force yet; "" if it is.
func (c *routeCheck) evaluate(ctx context.Context) (string, error) {
	ref := manifest.Ref(c.route.Unstructured)
	live, err := c.read(ctx, c.route)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", ref, c.cluster.Classify(err))
	}
	ours, other := rulesOwners(live)
	if other != "" && !c.reported {
		c.reported = true
		c.log.Errorf("%s: field manager %q writes spec.rules, too: shares are in force only until its next write; make sure that only one of the two writes the route", ref, other)
	}
	if !ours && other != "" {
		return "", &stageError{reason: fmt.Sprintf("%s: field manager %q has changed spec.rules, so the shares are not in force; make sure that only piped writes them", ref, other)}
	}
	verdict := traffic.Evaluate(live)
	if c.verdict != nil {
		if verdict, err = c.verdict(ctx, live); err != nil {
			return "", err
		}
	}
	switch {
	case verdict.Accepted:
		return "", nil
	case !verdict.Refused:
		c.refused = time.Time{}
	case c.refused.IsZero():
		c.refused = time.Now()
	case time.Since(c.refused) >= refusalStands:
		return "", &stageError{reason: fmt.Sprintf("%s is refused: %s", ref, verdict.Reason)}
	}
	return fmt.Sprintf("%s: %s", ref, verdict.Reason), nil
}

// read reads a whole object.
func (w *work) read(ctx context.Context, o manifest.Object) (*unstructured.Unstructured, error) {
	kind, err := w.cluster.Resource(ctx, o.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	return w.cluster.Dynamic().Resource(kind.GroupVersionResource).Namespace(o.GetNamespace()).Get(ctx, o.GetName(), metav1.GetOptions{})
}

// rulesOwners reports whether the agent owns spec.rules of a live route, and returns another
// field manager that owns it, "" if there is none. The list is atomic: several managers own
// it only if they wrote the same value.
func rulesOwners(live *unstructured.Unstructured) (ours bool, other string) {
	for _, entry := range live.GetManagedFields() {
		var fields struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		if entry.FieldsV1 == nil || entry.Subresource != "" || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if _, owns := fields.Spec["f:rules"]; !owns {
			continue
		}
		if entry.Manager == cluster.FieldManager {
			ours = true
		} else {
			other = entry.Manager
		}
	}
	return ours, other
}

// namesRules reports whether the cluster's version of the routes supports names of rules.
// It returns false if the definition cannot be read.
func (w *work) namesRules(ctx context.Context, r traffic.Routing, routes []manifest.Object) bool {
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	kind, err := w.cluster.Resource(ctx, schema.GroupVersionKind{Group: traffic.GatewayGroup, Version: routes[0].GroupVersionKind().Version, Kind: r.Kind()})
	if err != nil {
		return false
	}
	crd, err := w.cluster.Dynamic().Resource(definitions).Get(ctx, kind.Resource+"."+traffic.GatewayGroup, metav1.GetOptions{})
	if err != nil {
		return false
	}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		version, _ := v.(map[string]any)
		_, found, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", "spec", "properties", "rules", "items", "properties", "name")
		if version["name"] == kind.Version {
			return found
		}
	}
	return false
}

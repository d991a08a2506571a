package source

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// previewConfig returns the configuration of the preview of a pull request.
func (l *Loader) previewConfig(cfg *config.Application, at deploy.GitPath) (*config.Application, error) {
	switch {
	case l.Previews == nil:
		return nil, deploy.Errorf(deploy.Invalid, "%s: the agent deploys no pull requests: its configuration has no spec.previews", at.ConfigPath())
	case cfg.Preview == nil:
		return nil, deploy.Errorf(deploy.Invalid, "%s: the application has no spec.preview", at.ConfigPath())
	case cfg.Encryption != nil && len(cfg.Encryption.EncryptedSecrets) > 0:
		return nil, deploy.Errorf(deploy.Invalid, "%s: spec.encryption: a preview gets no secrets, because a pull request could reveal them", at.ConfigPath())
	}
	if _, err := l.Previews.HostOf(*cfg.Preview, at.PullRequest); err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "%s: spec.preview.host: %w", at.ConfigPath(), err)
	}
	return cfg.Previewed(l.Previews.Namespace(at.RepoID, at.PullRequest))
}

// Groups of kinds that receive requests for hosts.
const (
	ingressGroup = "networking.k8s.io"
	gatewayGroup = "gateway.networking.k8s.io"
)

// previewObjects replaces the hosts of Ingresses and routes by that of the preview. Other objects
// that claim hosts of the outside are refused, so that a preview cannot take requests of others.
// With a template of namespaces, what limits the namespace is left out, and what could undo the limits
// is refused, so that a pull request cannot widen them.
func (l *Loader) previewObjects(objects []manifest.Object, at deploy.GitPath, cfg *config.Application) ([]manifest.Object, error) {
	host, err := cfg.Preview.HostOf(at.PullRequest)
	if err != nil {
		return nil, err
	}
	if l.Previews.NamespaceTemplate != "" {
		objects = slices.DeleteFunc(objects, func(o manifest.Object) bool {
			return config.IsOfPreviewTemplate(o.GroupVersionKind().Group, o.GetKind())
		})
	}
	for _, o := range objects {
		group, kind := o.GroupVersionKind().Group, o.GetKind()
		if l.Previews.NamespaceTemplate != "" && config.WidensPreviewTemplate(group, kind) {
			return nil, deploy.Errorf(deploy.Invalid, "%s: a preview has no objects of kind %s, because they could undo the limits of spec.previews.namespaceTemplate of the agent", o.Origin, kind)
		}
		if takesRequests(group, kind) {
			return nil, deploy.Errorf(deploy.Invalid, "%s: a preview has no objects of kind %s, because they could receive requests of others", o.Origin, kind)
		}
		route := group == gatewayGroup && strings.HasSuffix(kind, "Route")
		ingress := kind == "Ingress" && (group == ingressGroup || group == "extensions")
		switch {
		case (route || ingress) && host == "":
			return nil, deploy.Errorf(deploy.Invalid, "%s: %s %q needs a host of the preview: set spec.preview.host", o.Origin, kind, o.GetName())
		case route:
			o.Object["spec"] = with(o.Object["spec"], "hostnames", []any{host})
		case ingress:
			o.Object["spec"] = ingressFor(o.Object["spec"], host)
			withoutAnnotations(o.Unstructured, isOfIngress)
		case group == "" && kind == "Service":
			withoutAddresses(o.Object["spec"])
		}
		withoutAnnotations(o.Unstructured, func(name string) bool { return !strings.HasPrefix(name, dnsAnnotations) })
	}
	return objects, nil
}

// with returns a mapping with one more value.
func with(mapping any, key string, value any) map[string]any {
	m, ok := mapping.(map[string]any)
	if !ok {
		m = map[string]any{}
	}
	m[key] = value
	return m
}

// ingressFor returns the spec of an Ingress with another host.
func ingressFor(spec any, host string) map[string]any {
	m, _ := spec.(map[string]any)
	for _, list := range []struct {
		name, key string
		value     any
	}{{"rules", "host", host}, {"tls", "hosts", []any{host}}} {
		items, _ := m[list.name].([]any)
		for i, item := range items {
			items[i] = with(item, list.key, list.value)
		}
	}
	if m["defaultBackend"] != nil { // it would receive the requests for every host
		delete(m, "defaultBackend")
	}
	return m
}

// takesRequests reports whether objects of a kind claim hosts of the outside in ways that are not
// replaced.
func takesRequests(group, kind string) bool {
	switch {
	case group == gatewayGroup:
		return kind != "ReferenceGrant" && !strings.HasSuffix(kind, "Route")
	case strings.HasSuffix(group, ".istio.io"):
		return slices.Contains([]string{"Gateway", "VirtualService", "ServiceEntry"}, kind)
	case group == "traefik.io" || group == "traefik.containo.us":
		return strings.HasPrefix(kind, "IngressRoute")
	case group == "projectcontour.io":
		return kind == "HTTPProxy"
	case group == "route.openshift.io":
		return kind == "Route"
	case group == "externaldns.k8s.io":
		return kind == "DNSEndpoint"
	}
	return false
}

// dnsAnnotations begin the annotations for which a controller creates records of other names.
const dnsAnnotations = "external-dns.alpha.kubernetes.io/"

// isOfIngress reports whether an annotation of an Ingress is known to claim no requests. Others could
// add hosts and paths, or configuration of the controller.
func isOfIngress(name string) bool {
	return name == "kubernetes.io/ingress.class" || strings.HasPrefix(name, "cert-manager.io/") || strings.HasPrefix(name, "pipecd.dev/")
}

// withoutAddresses removes the addresses of a Service at which it would receive requests of others.
func withoutAddresses(spec any) {
	if m, ok := spec.(map[string]any); ok {
		delete(m, "externalIPs")
		delete(m, "loadBalancerIP")
	}
}

// withoutAnnotations removes the annotations that are not allowed.
func withoutAnnotations(o *unstructured.Unstructured, allowed func(name string) bool) {
	all := o.GetAnnotations()
	for name := range all {
		if !allowed(name) {
			delete(all, name)
		}
	}
	if len(all) == 0 {
		all = nil
	}
	o.SetAnnotations(all)
}

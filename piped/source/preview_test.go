package source

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
)

// preview loads the preview of pull request 7 of an application with these objects and lines of its spec.
func preview(t *testing.T, spec, objects string) (*Source, error) {
	t.Helper()
	l, _ := loader(fstest.MapFS{
		"apps/web/app.pipecd.yaml": {Data: []byte("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: web\n  input: {namespace: shop}\n" + spec)},
		"apps/web/app.yaml":        {Data: []byte(objects)},
	}, 0)
	l.Previews = &config.Previews{NamespacePrefix: "preview-", Hosts: []string{"preview.example.com"}}
	at := at
	at.PullRequest = 7
	return l.Load(t.Context(), at, "c0ffee")
}

const previewHost = "  preview: {host: 'pr-{{ .PullRequest.Number }}.preview.example.com'}\n"

// TestPreviewTakesOnlyItsHost: hosts of the branch never reach the objects of a preview.
func TestPreviewTakesOnlyItsHost(t *testing.T) {
	src, err := preview(t, previewHost, `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, annotations: {external-dns.alpha.kubernetes.io/hostname: shop.example.com}}
spec: {defaultBackend: {service: {name: web}}, rules: [{host: shop.example.com}, {http: {}}], tls: [{hosts: [shop.example.com]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec: {rules: []}
`)
	if err != nil {
		t.Fatal(err)
	}
	if n := kubernetes.SpecOf(src.Config.Platform).Input.Namespace; n != "preview-7-repo" {
		t.Errorf("the namespace is %q", n)
	}
	for _, o := range src.Objects {
		text, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "shop.example.com") || strings.Contains(string(text), "defaultBackend") || !strings.Contains(string(text), "pr-7.preview.example.com") {
			t.Errorf("%s", text)
		}
	}
}

// TestPreviewClaimsNothingByAnnotations: annotations with which a controller adds hosts or configuration, and
// addresses of Services, never reach the objects of a preview.
func TestPreviewClaimsNothingByAnnotations(t *testing.T) {
	src, err := preview(t, previewHost, `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: web
  annotations:
    nginx.ingress.kubernetes.io/server-alias: shop.example.com
    nginx.ingress.kubernetes.io/configuration-snippet: claimed
    alb.ingress.kubernetes.io/group.name: claimed
    haproxy.org/server-snippet: claimed
    external-dns.alpha.kubernetes.io/hostname: shop.example.com
    kubernetes.io/ingress.class: nginx
    cert-manager.io/cluster-issuer: letsencrypt
    pipecd.dev/ignore-drift-detection: "true"
spec: {rules: [{http: {}}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, annotations: {external-dns.alpha.kubernetes.io/hostname: shop.example.com, prometheus.io/scrape: "true"}}
spec: {type: LoadBalancer, externalIPs: [192.0.2.1], loadBalancerIP: 192.0.2.2, ports: [{port: 80}]}
`)
	if err != nil {
		t.Fatal(err)
	}
	retained := map[string][]string{
		"Ingress": {"kubernetes.io/ingress.class", "cert-manager.io/cluster-issuer", "pipecd.dev/ignore-drift-detection"},
		"Service": {"prometheus.io/scrape", `"port":80`, "LoadBalancer"},
	}
	for _, o := range src.Objects {
		text, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		for _, claim := range []string{"shop.example.com", "claimed", "192.0.2", "externalIPs", "loadBalancerIP"} {
			if strings.Contains(string(text), claim) {
				t.Errorf("%q is in %s", claim, text)
			}
		}
		for _, rest := range retained[o.GetKind()] {
			if !strings.Contains(string(text), rest) {
				t.Errorf("%q is not in %s", rest, text)
			}
		}
		delete(retained, o.GetKind())
	}
	if len(retained) > 0 {
		t.Errorf("not rendered: %v", retained)
	}
}

// TestPreviewKeepsItsLimits: with a template of namespaces, a pull request cannot add what limits its
// namespace; without one, the manifests are applied as they are.
func TestPreviewKeepsItsLimits(t *testing.T) {
	files := fstest.MapFS{
		"apps/web/app.pipecd.yaml": {Data: []byte("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: web\n" + previewHost)},
		"apps/web/app.yaml": {Data: []byte(object("ConfigMap", "web") + `---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: open}
spec: {podSelector: {}, egress: [{}]}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: limits}
spec: {hard: {pods: "1000"}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: limits}
spec: {limits: []}
`)},
	}
	for template, want := range map[string]int{"": 4, "template.yaml": 1} {
		l, _ := loader(files, 0)
		l.Previews = &config.Previews{NamespacePrefix: "preview-", Hosts: []string{"preview.example.com"}, NamespaceTemplate: template}
		at := at
		at.PullRequest = 7
		src, err := l.Load(t.Context(), at, "c0ffee")
		if err != nil || len(src.Objects) != want {
			t.Errorf("with template %q: %v, %v, want %d objects", template, src, err, want)
		}
	}
}

// TestPreviewUndoesNoLimits: with a template of namespaces, rights and network policies of other
// controllers are refused; without one, they are applied.
func TestPreviewUndoesNoLimits(t *testing.T) {
	for name, apiVersion := range map[string]string{
		"Role": "rbac.authorization.k8s.io/v1", "RoleBinding": "rbac.authorization.k8s.io/v1", "CiliumNetworkPolicy": "cilium.io/v2",
		"NetworkPolicy": "crd.projectcalico.org/v1", "AdminNetworkPolicy": "policy.networking.k8s.io/v1alpha1",
	} {
		for template, refused := range map[string]bool{"": false, "template.yaml": true} {
			l, _ := loader(fstest.MapFS{
				"apps/web/app.pipecd.yaml": {Data: []byte("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: web\n" + previewHost)},
				"apps/web/app.yaml":        {Data: []byte("apiVersion: " + apiVersion + "\nkind: " + name + "\nmetadata: {name: web}\n")},
			}, 0)
			l.Previews = &config.Previews{NamespacePrefix: "preview-", Hosts: []string{"preview.example.com"}, NamespaceTemplate: template}
			at := at
			at.PullRequest = 7
			_, err := l.Load(t.Context(), at, "c0ffee")
			if says := err != nil && strings.Contains(err.Error(), "no objects of kind "+name); says != refused || !refused && err != nil {
				t.Errorf("%s of %s with template %q: %v, want it refused: %t", name, apiVersion, template, err, refused)
			}
		}
	}
}

func TestPreviewIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ spec, objects, says string }{
		"without preview": {"", object("ConfigMap", "web"), "no spec.preview"},
		"a prod host":     {"  preview: {host: 'pr-{{ .PullRequest.Number }}.shop.example.com'}\n", object("ConfigMap", "web"), "not below a domain"},
		"a lookalike":     {"  preview: {host: 'pr-{{ .PullRequest.Number }}preview.example.com'}\n", object("ConfigMap", "web"), "not below a domain"},
		"no host":         {"  preview: {}\n", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web}\n", "set spec.preview.host"},
		"a gateway":       {previewHost, "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: web}\n", "kind Gateway"},
		"istio":           {previewHost, "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: web}\n", "kind VirtualService"},
		"a service entry": {previewHost, "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: web}\n", "kind ServiceEntry"},
		"traefik":         {previewHost, "apiVersion: traefik.io/v1alpha1\nkind: IngressRoute\nmetadata: {name: web}\n", "kind IngressRoute"},
		"traefik's tcp":   {previewHost, "apiVersion: traefik.io/v1alpha1\nkind: IngressRouteTCP\nmetadata: {name: web}\n", "kind IngressRouteTCP"},
		"traefik 2":       {previewHost, "apiVersion: traefik.containo.us/v1alpha1\nkind: IngressRoute\nmetadata: {name: web}\n", "kind IngressRoute"},
		"contour":         {previewHost, "apiVersion: projectcontour.io/v1\nkind: HTTPProxy\nmetadata: {name: web}\n", "kind HTTPProxy"},
		"openshift":       {previewHost, "apiVersion: route.openshift.io/v1\nkind: Route\nmetadata: {name: web}\n", "kind Route"},
		"external-dns":    {previewHost, "apiVersion: externaldns.k8s.io/v1alpha1\nkind: DNSEndpoint\nmetadata: {name: web}\n", "kind DNSEndpoint"},
		"a secret":        {previewHost + "  encryption: {encryptedSecrets: {password: abc}, decryptionTargets: [app.yaml]}\n", object("Secret", "web"), "gets no secrets"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := preview(t, c.spec, c.objects); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error with %q", err, c.says)
			}
		})
	}
}

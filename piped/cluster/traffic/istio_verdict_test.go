package traffic

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/manifest"
)

func object(t *testing.T, text string) unstructured.Unstructured {
	t.Helper()
	objects, err := manifest.Parse("app.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return *objects[0].Unstructured
}

// TestEvaluateVirtualService: a VirtualService is accepted if one of its Gateways serves HTTP for its host, by the
// rules of Istio for hosts of servers, and if the status that Istio may report has no error.
func TestEvaluateVirtualService(t *testing.T) {
	for name, c := range map[string]struct {
		servers, status string
		says            string // "" if it is accepted
		refused         bool
	}{
		"the host":              {servers: "{port: {protocol: HTTP}, hosts: [pr-7.example.com]}"},
		"every host":            {servers: `{port: {protocol: HTTPS}, tls: {mode: SIMPLE}, hosts: ["*"]}`},
		"a wildcard":            {servers: `{port: {protocol: HTTP2}, hosts: ["*.example.com"]}`},
		"of the namespace":      {servers: `{port: {protocol: HTTP}, hosts: ["shop/*.example.com"]}`},
		"of every namespace":    {servers: `{port: {protocol: HTTP}, hosts: ["*/*"]}`},
		"of another namespace":  {servers: `{port: {protocol: HTTP}, hosts: ["bank/*"]}`, says: "has a server for HTTP with the host pr-7.example.com", refused: true},
		"of its own namespace":  {servers: `{port: {protocol: HTTP}, hosts: ["./*"]}`, says: "has a server for HTTP", refused: true},
		"another host":          {servers: `{port: {protocol: HTTP}, hosts: ["shop.example.com", "*.shop.example.com"]}`, says: "has a server for HTTP", refused: true},
		"a passed through one":  {servers: `{port: {protocol: HTTPS}, tls: {mode: PASSTHROUGH}, hosts: ["*"]}`, says: "has a server for HTTP", refused: true},
		"TCP":                   {servers: `{port: {protocol: TCP}, hosts: ["*"]}`, says: "has a server for HTTP", refused: true},
		"analysed":              {servers: `{port: {protocol: HTTP}, hosts: ["*"]}`, status: `{conditions: [{type: PassedAnalysis, status: "True"}, {type: Reconciled, status: "True"}], observedGeneration: 3}`},
		"a warning":             {servers: `{port: {protocol: HTTP}, hosts: ["*"]}`, status: `{conditions: [{type: PassedAnalysis, status: "False"}], validationMessages: [{code: IST0102, level: Warn, message: no}]}`},
		"an error":              {servers: `{port: {protocol: HTTP}, hosts: ["*"]}`, status: `{conditions: [{type: PassedAnalysis, status: "False"}], validationMessages: [{code: IST0101, level: Error, message: host not found}]}`, says: "Istio says IST0101: host not found", refused: true},
		"an error of today":     {servers: `{port: {protocol: HTTP}, hosts: ["*"]}`, status: `{conditions: [{type: PassedAnalysis, status: "False", observedGeneration: 3}], validationMessages: [{type: {code: IST0101, name: ReferencedResourceNotFound}, level: ERROR}]}`, says: "IST0101 ReferencedResourceNotFound", refused: true},
		"an old error":          {servers: `{port: {protocol: HTTP}, hosts: ["*"]}`, status: `{conditions: [{type: PassedAnalysis, status: "False", observedGeneration: 2}], validationMessages: [{code: IST0101, level: Error}]}`},
		"not distributed":       {servers: `{port: {protocol: HTTP}, hosts: ["*"]}`, status: `{conditions: [{type: Reconciled, status: "False", message: 61/122 complete}], observedGeneration: 3}`, says: "not distributed the latest change yet: 61/122 complete"},
		"an earlier generation": {servers: `{port: {protocol: HTTP}, hosts: ["*"]}`, status: `{conditions: [{type: Reconciled, status: "True", message: 122/122 complete}], observedGeneration: 2}`, says: "not distributed the latest change yet"},
	} {
		virtualService := object(t, "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: web, namespace: shop, generation: 3}\nspec: {hosts: [pr-7.example.com], gateways: [gateways/public, mesh]}\n")
		if c.status != "" {
			virtualService.Object["status"] = object(t, "apiVersion: v1\nkind: Any\nmetadata: {name: any}\nstatus: "+c.status).Object["status"]
		}
		gateway := object(t, "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: public, namespace: gateways}\nspec: {servers: ["+c.servers+"]}\n")
		got := EvaluateVirtualService(&virtualService, []unstructured.Unstructured{gateway})
		if got.Accepted != (c.says == "") || got.Refused != c.refused || !strings.Contains(got.Reason, c.says) {
			t.Errorf("%s: %+v, want %q", name, got, c.says)
		}
		if names := GatewaysOf(&virtualService); len(names) != 1 || names[0] != [2]string{"gateways", "public"} {
			t.Errorf("gateways %v", names)
		}
		if got := EvaluateVirtualService(&virtualService, nil); !got.Refused {
			t.Errorf("without its Gateway: %+v", got)
		}
	}
}

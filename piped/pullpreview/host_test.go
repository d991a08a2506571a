package pullpreview

import (
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
)

// TestHostOfAnotherPreview: a preview does not get the host of a preview of another repository, before that is
// gone.
func TestHostOfAnotherPreview(t *testing.T) {
	e := newEnv(t)
	e.app("web", "{host: 'pr-{{ .PullRequest.Number }}.example.com'}")
	e.must(e.store.PutPullPreview(t.Context(), deploy.PullPreview{
		RepoID: "shop", Number: 7, Head: "c1", Phase: deploy.PreviewReady, Applications: []deploy.PullPreviewApplication{{Host: "pr-7.example.com"}},
	}))
	e.open(7, nil, "web")
	e.open(8, nil, "web")
	e.pass()
	if got := e.stored(7); got.Phase != deploy.PreviewFailed || !strings.Contains(got.Reason, "pr-7.example.com is the host of the preview of pull request shop#7") || got.Applications[0].Host != "" {
		t.Errorf("stored: %+v", got)
	}
	if got := e.apps(); got != "web-pr-8" {
		t.Errorf("the preview applications are %q", got)
	}
	e.must(e.store.DropPullPreview(t.Context(), "shop", 7))
	e.pass()
	if got := e.stored(7); got.Phase != deploy.PreviewReady || got.Applications[0].Host != "pr-7.example.com" {
		t.Errorf("stored when the other one is gone: %+v", got)
	}
}

// TestHostsThatAreNotAllowed: an application whose host the agent does not allow has no preview. When the agent
// starts with fewer domains, those of others are removed.
func TestHostsThatAreNotAllowed(t *testing.T) {
	e := newEnv(t)
	e.app("web", "{host: 'pr-{{ .PullRequest.Number }}.example.com'}")
	e.app("api", "{host: 'api-{{ .PullRequest.Number }}.preview.example.com'}")
	e.app("bank", "{host: 'pr-{{ .PullRequest.Number }}.bank.com'}")
	e.open(7, nil, "web", "api")
	e.open(8, nil, "bank")
	e.open(9, nil, "web")
	e.pass()
	if got := e.apps(); got != "api-pr-7 web-pr-7 web-pr-9" || len(e.spaces) != 2 {
		t.Errorf("the preview applications are %q, the namespaces %v", got, e.spaces)
	}
	if got := e.stored(8); got.Phase != deploy.PreviewFailed || !strings.Contains(got.Reason, "pr-8.bank.com is not below a domain of spec.previews.hosts of the agent (example.com)") {
		t.Errorf("stored: %+v", got)
	}
	settings := e.p.Settings
	settings.Hosts = []string{"preview.example.com"}
	e.start(settings)
	e.pass()
	if got := e.apps(); got != "api-pr-7" || len(e.spaces) != 1 {
		t.Errorf("with fewer domains the preview applications are %q, the namespaces %v", got, e.spaces)
	}
	for _, number := range []int{7, 9} {
		if got := e.stored(number); got.Phase != deploy.PreviewFailed || !strings.Contains(got.Reason, "is not below a domain") {
			t.Errorf("stored: %+v", got)
		}
	}
}

// TestHostOfTwoVirtualServices: of the applications of a preview that are reached through Istio, only one has the
// host that several name.
func TestHostOfTwoVirtualServices(t *testing.T) {
	e := newEnv(t)
	const shared = "{mode: route, host: 'pr-{{ .PullRequest.Number }}.example.com'}\n  input: {namespace: shop}"
	e.app("api", shared)
	e.app("web", shared)
	e.open(7, nil, "api", "web")
	e.pass()
	e.want("routes of the Gateway API", "7 READY", "api-pr-7 web-pr-7", 0)

	e.route = Route{OwnHost: true}
	e.open(7, nil, "api", "web")
	e.pass()
	if got := e.stored(7); got.Phase != deploy.PreviewFailed || !strings.Contains(got.Reason, "pr-7.example.com is the host of api, too, and Istio merges") {
		t.Errorf("stored: %+v", got)
	}
	if got := e.apps(); got != "api-pr-7" {
		t.Errorf("the preview applications are %q", got)
	}
}

package notify_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/notify"
	"github.com/c785c783/piped/piped/notify/notifytest"
)

// TestPage: addresses are below the page's address, which may end in a slash or have a path;
// without it there are none.
func TestPage(t *testing.T) {
	for name, c := range map[string]struct{ configured, base string }{
		"a host":           {"https://piped.example.com", "https://piped.example.com"},
		"a trailing slash": {"https://piped.example.com/", "https://piped.example.com"},
		"a path":           {"https://example.com/tools/piped", "https://example.com/tools/piped"},
		"a path and slash": {"https://example.com/tools/piped/", "https://example.com/tools/piped"},
	} {
		t.Run(name, func(t *testing.T) {
			page := notify.Page(func() string { return c.configured })
			got := []string{page.Deployment("d1"), page.Application("a/1"), page.PlanPreview("p1"), page.Agent(), page.Rollouts("a&b"), page.Deployment("")}
			want := []string{c.base + "/deployments/d1", c.base + "/applications/a%2F1", c.base + "/plan-previews/p1", c.base + "/agent", c.base + "/rollouts?namespace=a%26b", ""}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
		})
	}
	for name, page := range map[string]notify.Page{"nil": nil, "no address": func() string { return "" }} {
		for _, got := range []string{page.Deployment("d1"), page.Application("a1"), page.PlanPreview("p1"), page.Agent(), page.Rollouts("shop")} {
			if got != "" {
				t.Errorf("%s: address %q", name, got)
			}
		}
	}
}

// TestPageOfASubject: a notice leads to its deployment, else to its application, else to the
// agent.
func TestPageOfASubject(t *testing.T) {
	page := notify.Page(func() string { return "https://piped.example.com" })
	unknown := notifytest.Notice(deploy.EventTriggerFailed)
	unknown.Application = nil
	for name, c := range map[string]struct {
		notice notify.Notice
		want   string
	}{
		"a deployment":               {notifytest.Notice(deploy.EventStarted), "https://piped.example.com/deployments/0123456789abcdef"},
		"a stage":                    {notifytest.Notice(deploy.EventStageFailed), "https://piped.example.com/deployments/0123456789abcdef"},
		"an application":             {notifytest.Notice(deploy.EventOutOfSync), "https://piped.example.com/applications/app-1"},
		"the agent":                  {notifytest.Notice(deploy.EventPipedStarted), "https://piped.example.com/agent"},
		"an application that is not": {unknown, ""},
	} {
		if got := page.Subject(c.notice); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

package githost

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

const secret = "correct horse battery staple"

// delivery is an unsigned request from a file below testdata.
type delivery struct {
	header http.Header
	body   []byte
}

func load(t testing.TB, name string) delivery {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".http"))
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(bytes.NewReader(data))
	header, err := textproto.NewReader(r).ReadMIMEHeader()
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return delivery{http.Header(header), body}
}

func (d delivery) request() *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/webhooks/it", bytes.NewReader(d.body))
	r.Header = d.header.Clone()
	return r
}

// sign adds the signature of the host. What is signed differs from the body only for
// Gitea's forms.
func (d delivery) sign(by config.WebhookType, secret string, signed []byte) delivery {
	d.header = d.header.Clone()
	mac := mac(secret, signed)
	switch by {
	case config.WebhookGitHub:
		d.header.Set("X-Hub-Signature-256", "sha256="+mac)
	case config.WebhookGitLab:
		d.header.Set("X-Gitlab-Token", secret)
	case config.WebhookGitea:
		d.header.Set("X-Gitea-Signature", mac)
		d.header.Set("X-Hub-Signature-256", "sha256="+mac)
	case config.WebhookBitbucket:
		d.header.Set("X-Hub-Signature", "sha256="+mac)
	}
	return d
}

// form returns the delivery with a form as content type.
func (d delivery) form() delivery {
	d.header = d.header.Clone()
	d.header.Set("Content-Type", "application/x-www-form-urlencoded")
	d.body = []byte(url.Values{"payload": {string(d.body)}}.Encode())
	return d
}

func mac(secret string, data []byte) string {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil))
}

func receiver(t testing.TB, of config.WebhookType) *Receiver {
	t.Helper()
	r, err := New(of, strict.NewSecret(secret))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// deliveries returns the expected result for every file below testdata.
func deliveries() map[config.WebhookType]map[string]Push {
	gitHub := []string{"https://github.com/shop/config.git", "git@github.com:shop/config.git", "git://github.com/shop/config.git", "https://github.com/shop/config"}
	gitLab := []string{"https://gitlab.shop.example/platform/apps/config.git", "ssh://git@gitlab.shop.example:2222/platform/apps/config.git", "https://gitlab.shop.example/platform/apps/config"}
	gitea := []string{"https://gitea.shop.example/git/shop/config.git", "ssh://git@gitea.shop.example:2222/shop/config.git", "https://gitea.shop.example/git/shop/config"}
	forgejo := []string{"https://code.shop.example/git/shop/config.git", "ssh://git@code.shop.example:2222/shop/config.git", "https://code.shop.example/git/shop/config"}
	dataCenter := []string{"ssh://git@bitbucket.shop.example:7999/plat/config.git", "https://bitbucket.shop.example/scm/plat/config.git"}
	return map[config.WebhookType]map[string]Push{
		config.WebhookGitHub: {
			"github-push-to-a-branch":           {Remotes: gitHub, Branches: []string{"main"}},
			"github-push-of-a-new-branch":       {Remotes: gitHub, Branches: []string{"release/2026-03"}},
			"github-push-of-a-tag":              {},
			"github-push-that-deletes-a-branch": {},
			"github-pull-request":               {Remotes: gitHub, Proposal: &Proposal{2, "more", "76ae82c7b1a177c8d03f9e96e0adf2466113728f", "main"}},
			"github-pull-request-is-pushed-to":  {Remotes: gitHub, Proposal: &Proposal{2, "more", "86ae82c7b1a177c8d03f9e96e0adf2466113728f", "main"}},
			"github-pull-request-from-a-fork":   {},
			"github-pull-request-is-labeled":    {},
			"github-ping":                       {Ping: true},
		},
		config.WebhookGitLab: {
			"gitlab-push-to-a-branch":                     {Remotes: gitLab, Branches: []string{"main"}},
			"gitlab-push-of-a-tag":                        {},
			"gitlab-push-that-deletes-a-branch":           {},
			"gitlab-merge-request":                        {Remotes: gitLab, Proposal: &Proposal{1, "more", "76ae82c7b1a177c8d03f9e96e0adf2466113728f", "main"}},
			"gitlab-merge-request-is-pushed-to":           {Remotes: gitLab, Proposal: &Proposal{1, "more", "86ae82c7b1a177c8d03f9e96e0adf2466113728f", "main"}},
			"gitlab-merge-request-has-a-new-title":        {},
			"gitlab-merge-request-from-a-fork":            {},
			"gitlab-system-hook-push-to-a-branch":         {Remotes: gitLab, Branches: []string{"main"}},
			"gitlab-system-hook-push-to-several-branches": {Remotes: gitLab, Branches: []string{"main", "feature/one"}},
			"gitlab-system-hook-push-of-a-tag":            {},
			"gitlab-system-hook-project-created":          {},
		},
		config.WebhookGitea: {
			"gitea-push-to-a-branch":          {Remotes: gitea, Branches: []string{"main"}},
			"gitea-push-of-a-tag":             {},
			"gitea-branch-deleted":            {},
			"gitea-pull-request":              {Remotes: gitea, Proposal: &Proposal{3, "more", "76ae82c7b1a177c8d03f9e96e0adf2466113728f", "main"}},
			"gitea-pull-request-is-pushed-to": {Remotes: gitea, Proposal: &Proposal{3, "more", "86ae82c7b1a177c8d03f9e96e0adf2466113728f", "main"}},
			"gitea-pull-request-is-closed":    {},
			"forgejo-push-to-a-branch":        {Remotes: forgejo, Branches: []string{"feature/größe"}},
		},
		config.WebhookBitbucket: {
			"bitbucket-cloud-push-to-several-branches":    {Remotes: []string{"https://bitbucket.org/shop/config"}, Branches: []string{"main", "feature/one"}},
			"bitbucket-cloud-push-that-deletes-a-branch":  {},
			"bitbucket-cloud-pull-request":                {},
			"bitbucket-server-push-to-several-branches":   {Remotes: dataCenter, Branches: []string{"main", "feature/one"}},
			"bitbucket-server-push-that-deletes-a-branch": {},
			"bitbucket-server-connection-test":            {Ping: true},
		},
	}
}

func TestDeliveries(t *testing.T) {
	for of, files := range deliveries() {
		for name, want := range files {
			t.Run(name, func(t *testing.T) {
				d := load(t, name)
				got, err := receiver(t, of).Parse(d.sign(of, secret, d.body).request())
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("push (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestEveryFileIsRead: every file below testdata has an expected result.
func TestEveryFileIsRead(t *testing.T) {
	read := map[string]bool{"bitbucket-server-push-without-addresses": true}
	for _, files := range deliveries() {
		for name := range files {
			read[name] = true
		}
	}
	entries, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".http"); ok && !read[name] {
			t.Errorf("testdata/%s is in no test", e.Name())
		}
	}
}

func TestDeliveriesAsForms(t *testing.T) {
	t.Run("GitHub signs the form", func(t *testing.T) {
		d := load(t, "github-push-to-a-branch").form()
		got, err := receiver(t, config.WebhookGitHub).Parse(d.sign(config.WebhookGitHub, secret, d.body).request())
		if err != nil || !cmp.Equal(got.Branches, []string{"main"}) {
			t.Errorf("branches %q, error %v; want main", got.Branches, err)
		}
	})
	t.Run("Gitea signs the payload in the form", func(t *testing.T) {
		d := load(t, "gitea-push-to-a-branch")
		got, err := receiver(t, config.WebhookGitea).Parse(d.form().sign(config.WebhookGitea, secret, d.body).request())
		if err != nil || !cmp.Equal(got.Branches, []string{"main"}) {
			t.Errorf("branches %q, error %v; want main", got.Branches, err)
		}
	})
}

func TestDeliveriesThatCannotBeUnderstood(t *testing.T) {
	tests := map[string]struct {
		of     config.WebhookType
		file   string
		change func(*delivery)
		want   string
	}{
		"not JSON": {config.WebhookGitHub, "github-push-to-a-branch", func(d *delivery) { d.body = []byte("ref=main") },
			`the payload of event "push" is not the JSON that GitHub sends`},
		"JSON of another shape": {config.WebhookGitLab, "gitlab-push-to-a-branch", func(d *delivery) { d.body = []byte(`{"ref": 7031}`) },
			`the payload of event "Push Hook" is not the JSON that GitLab sends`},
		"no event": {config.WebhookGitea, "gitea-push-to-a-branch", func(d *delivery) { d.header.Del("X-Gitea-Event") },
			"the delivery has no header X-Gitea-Event; check that the webhook's type is that of its sender"},
		"no repository": {config.WebhookGitHub, "github-push-to-a-branch", func(d *delivery) { d.body = []byte(`{"ref": "refs/heads/main"}`) },
			`the payload of event "push" names no address of its repository`},
		"Bitbucket without addresses": {config.WebhookBitbucket, "bitbucket-server-push-without-addresses", func(*delivery) {},
			`the payload of event "repo:refs_changed" names no address of its repository`},
		"unknown content type": {config.WebhookGitHub, "github-push-to-a-branch", func(d *delivery) { d.header.Set("Content-Type", "text/plain") },
			"the delivery is neither JSON nor a form; set the webhook's content type to application/json at the Git host"},
		"no content type": {config.WebhookGitea, "gitea-push-to-a-branch", func(d *delivery) { d.header.Del("Content-Type") },
			"the delivery is neither JSON nor a form; set the webhook's content type to application/json at the Git host"},
		"form that is none": {config.WebhookGitea, "gitea-push-to-a-branch", func(d *delivery) {
			d.header.Set("Content-Type", "application/x-www-form-urlencoded")
			d.body = []byte("payload=%zz")
		}, "the delivery's content type is a form, but its body is not"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := load(t, tc.file)
			tc.change(&d)
			push, err := receiver(t, tc.of).Parse(d.sign(tc.of, secret, d.body).request())
			if !deploy.IsKind(err, deploy.Invalid) || err.Error() != tc.want {
				t.Errorf("error %v, want of kind Invalid: %s", err, tc.want)
			}
			if diff := cmp.Diff(Push{}, push); diff != "" {
				t.Errorf("push with an error (-want +got):\n%s", diff)
			}
		})
	}
}

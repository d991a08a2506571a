package config

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/c785c783/piped/piped/config/strict"
)

// Webhook is one receiver of pushes: POST /webhooks/<name> on the web address.
type Webhook struct {
	// Name is the last part of the URL: the Git host sends to `POST /webhooks/<name>` on
	// `web.address`. A unique DNS label.
	// Required.
	Name string `yaml:"name"`
	// Type is the Git host. `GITEA` is Forgejo, too.
	// Required.
	Type WebhookType `yaml:"type"`
	// Secret is what the Git host signs with or sends as its token. Set this or `secretFile`;
	// never empty.
	// Required, or `secretFile`.
	Secret strict.Secret `yaml:"secret"`
	// SecretFile is the file of the secret.
	//
	// Load reads whichever of Secret and SecretFile is set.
	SecretFile string `yaml:"secretFile"`
}

// WebhookType says who sends to a webhook, and with that how its deliveries are
// signed and read.
type WebhookType string

// The types of webhooks. Gitea stands for Forgejo too.
const (
	WebhookGitHub    WebhookType = "GITHUB"
	WebhookGitLab    WebhookType = "GITLAB"
	WebhookGitea     WebhookType = "GITEA"
	WebhookBitbucket WebhookType = "BITBUCKET"
)

// Values returns every type.
func (WebhookType) Values() []string {
	return []string{string(WebhookGitHub), string(WebhookGitLab), string(WebhookGitea), string(WebhookBitbucket)}
}

// Load returns the webhook's secret, which is never empty: what secret holds, or
// the content of secretFile without the line breaks at its end. Errors are of
// kind deploy.Invalid and do not show the content.
func (w Webhook) Load() (strict.Secret, error) {
	if w.SecretFile == "" {
		return w.Secret, nil
	}
	trim := func(text string) string { return strings.TrimRight(text, "\r\n") }
	return readSecret(w.SecretFile, trim, "the secret of webhook "+w.Name, "write the secret that the Git host was given into it")
}

func completeWebhooks(hooks []Webhook, d *strict.Document, r resolver) []Webhook {
	seen := names{d: d}
	for i := range hooks {
		hook, at := &hooks[i], fmt.Sprintf("webhooks[%d]", i)
		seen.add(at, "name", hook.Name)
		if why := validation.IsDNS1123Label(hook.Name); hook.Name != "" && len(why) > 0 {
			d.Problemf(at+".name", "%q cannot be the last part of a URL: %s", hook.Name, why[0])
		}
		if hook.Type == "" {
			d.Problemf(at+".type", "required; expected %s", strict.Alternatives(hook.Type.Values()))
		}
		if secret := at + ".secret"; d.Has(secret) && strings.TrimSpace(hook.Secret.Reveal()) == "" {
			d.Problemf(secret, "is empty, so that anybody could send to the webhook")
		} else {
			exactlyOne(d, field{secret, d.Has(secret)}, field{at + ".secretFile", hook.SecretFile != ""})
		}
		hook.SecretFile = r.path(at+".secretFile", hook.SecretFile)
	}
	return hooks
}

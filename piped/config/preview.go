package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"text/template"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// Preview is spec.preview of an application: which pull requests get a preview of it, and what
// the preview has.
type Preview struct {
	// Label is the label that a pull request must have.
	// Default: none: every pull request.
	Label string `yaml:"label"`
	// Mode is where the preview runs. `namespace` is a namespace of its own for each pull request,
	// which all of its applications share. `route` is the namespace of the application: copies of
	// its workloads get the requests with Header, or for Host, and everything else is shared.
	// Default: `namespace`.
	Mode PreviewMode `yaml:"mode"`
	// Header is the request header that leads to the preview with mode `route`, such as `X-Preview`. Its
	// value is the name of the preview, `pr-<number>-<repoId>`. The applications of a pull request have
	// the same one. It needs routes of the Gateway API: VirtualServices of Istio are for Host.
	// Default: none: the host leads to the preview.
	Header string `yaml:"header"`
	// Host is the host of the preview, such as `pr-{{ .PullRequest.Number }}.preview.example.com`. It
	// replaces the hosts of Ingresses and of routes of the Gateway API; with mode `route` it is an additional
	// one. The number must be in it, and `spec.previews.hosts` of the agent must allow it. In mode `namespace`, an application with such
	// objects needs it.
	// Default: none. Type: template.
	Host string `yaml:"host"`
	// TTL is how long after its last deployment a preview is removed. The next commit of the pull
	// request brings it back.
	// Default: as long as the pull request is open.
	TTL time.Duration `yaml:"ttl"`
	// MaxActive is how many pull requests have a preview of the application at once. Others wait.
	// Default: as many as `spec.previews.maxActive` of the agent allows.
	MaxActive int `yaml:"maxActive"`
	// AllowForks permits pull requests of forks. Each commit needs Label anew: with a new commit,
	// a maintainer removes the label and adds it again. It needs a `label`.
	// Default: `false`: they have no preview.
	AllowForks bool `yaml:"allowForks"`
	// Requires are the names of applications of the repository that are part of the preview also
	// if the pull request does not touch them. Each needs a `spec.preview` of its own.
	// Default: none.
	Requires []string `yaml:"requires"`
	// Secrets are the names of the Secrets of the application's namespace that the pods of previews
	// with mode `route` may use. Those that the pull request itself adds or changes need no name.
	// Default: none.
	Secrets []string `yaml:"secrets"`
}

// Default sets the mode.
func (p *Preview) Default() { p.Mode = PreviewNamespace }

// PreviewMode is where a preview runs.
type PreviewMode string

// The modes: a namespace of its own, and copies next to the application.
const (
	PreviewNamespace PreviewMode = "namespace"
	PreviewRoute     PreviewMode = "route"
)

// Values returns every mode.
func (PreviewMode) Values() []string {
	return []string{string(PreviewNamespace), string(PreviewRoute)}
}

// HostOf returns the host of the preview of a pull request, "" if there is none. It is a valid one with the
// number of the pull request in it, so that no pull request can have the host of another one, or of
// something else.
func (p Preview) HostOf(number int) (string, error) {
	t, err := template.New("host").Option("missingkey=error").Parse(p.Host)
	if err != nil {
		return "", err
	}
	var data struct{ PullRequest struct{ Number int } }
	data.PullRequest.Number = number
	var out strings.Builder
	if err := t.Execute(&out, data); err != nil || out.Len() == 0 {
		return "", err
	}
	return out.String(), checkPreviewHost(out.String(), number)
}

var digits = regexp.MustCompile("[0-9]+")

func checkPreviewHost(host string, number int) error {
	if why := validation.IsDNS1123Subdomain(host); why != nil {
		return fmt.Errorf("%q is not a host: %s", host, why[0])
	}
	for label := range strings.SplitSeq(host, ".") {
		if len(label) > validation.DNS1123LabelMaxLength {
			return fmt.Errorf("%q is not a host: %q has more than %d characters", host, label, validation.DNS1123LabelMaxLength)
		}
	}
	for _, found := range digits.FindAllString(host, -1) {
		if strings.TrimLeft(found, "0") == strconv.Itoa(number) {
			return nil
		}
	}
	return fmt.Errorf("expected {{ .PullRequest.Number }} in it, not next to other digits, because each pull request needs a host of its own; that of pull request %d is %q", number, host)
}

func (p *Preview) complete(d *strict.Document) {
	if p.Host != "" {
		if _, err := p.HostOf(1); err != nil {
			d.Problemf("preview.host", "expected a host such as pr-{{ .PullRequest.Number }}.preview.example.com, found %q: %s", p.Host, err)
		}
	}
	p.completeRoute(d)
	if p.AllowForks && p.Label == "" {
		d.Problemf("preview.allowForks", "expected preview.label, too: without a label that a maintainer sets, anybody could deploy")
	}
	for i, name := range p.Requires {
		if name == "" {
			d.Problemf(fmt.Sprintf("preview.requires[%d]", i), "expected the name of an application, found nothing")
		}
	}
	if p.TTL < 0 {
		d.Problemf("preview.ttl", "expected a duration above 0, or nothing for no limit, found %s", p.TTL)
	}
	if p.MaxActive < 0 {
		d.Problemf("preview.maxActive", "expected a number above 0, or nothing for the agent's limit, found %d", p.MaxActive)
	}
}

// headerName matches the names of HTTP headers, as routes of the Gateway API have them.
var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_|~`-]{1,256}$")

// completeRoute checks what belongs to mode route.
func (p *Preview) completeRoute(d *strict.Document) {
	if p.Mode != PreviewRoute {
		if p.Header != "" {
			d.Problemf("preview.header", "expected preview.mode: route with it: a preview in a namespace of its own is reached by its host")
		}
		if len(p.Secrets) > 0 {
			d.Problemf("preview.secrets", "expected preview.mode: route with it: a preview in a namespace of its own reaches no Secret of another one")
		}
		return
	}
	switch {
	case p.Header == "" && p.Host == "":
		d.Problemf("preview.header", "expected the header that leads to the preview, such as X-Preview, or a preview.host, found neither")
	case p.Header != "" && (!headerName.MatchString(p.Header) || strings.EqualFold(p.Header, "host")):
		d.Problemf("preview.header", "expected the name of a header, such as X-Preview, found %q", p.Header)
	}
	if p.AllowForks {
		d.Problemf("preview.allowForks", "expected preview.mode: namespace with it: with mode route a fork would run next to the application, with the rights of its namespace")
	}
	for i, name := range p.Secrets {
		if why := validation.IsDNS1123Subdomain(name); why != nil {
			d.Problemf(fmt.Sprintf("preview.secrets[%d]", i), "expected the name of a Secret, found %q", name)
		}
	}
}

// Previewed returns the configuration of a preview: every deployment is a quick sync at once, without
// scripts, approvals and what follows it, and a failed one is not rolled back, so that its pods can be
// examined. With mode route it stays in the namespace of the application, and what a later commit does
// not have any more is deleted. The error is of kind deploy.Invalid.
func (a *Application) Previewed(namespace string) (*Application, error) {
	spec, ok := a.Platform.(*kubernetes.Spec)
	if !ok {
		return nil, deploy.Errorf(deploy.Invalid, "applications of kind %s have no previews", a.Kind)
	}
	placed, no := *spec, false
	if a.Preview.Mode == PreviewRoute {
		if namespace = spec.Input.Namespace; namespace == "" {
			return nil, deploy.Errorf(deploy.Invalid, "a preview with mode route needs spec.input.namespace: set it to the namespace of the application")
		}
		placed.QuickSync.Prune, placed.QuickSync.AddVariantLabelToSelector, placed.PruneKinds = true, false, nil
	}
	placed.Input.Namespace, placed.Input.AutoCreateNamespace, placed.Input.AutoRollback, placed.TakeOver = namespace, false, nil, false
	out := *a
	out.Platform, out.Planner = &placed, Planner{AutoRollback: &no}
	out.Pipeline, out.CommitMatcher, out.PostSync, out.SyncWindows = nil, CommitMatcher{}, PostSync{}, SyncWindows{}
	return &out, nil
}

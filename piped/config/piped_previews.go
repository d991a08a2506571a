package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/c785c783/piped/piped/config/strict"
)

// Previews is spec.previews: that pull requests are deployed, and the limits of that.
type Previews struct {
	// NamespacePrefix is the begin of the names of namespaces of previews:
	// `<namespacePrefix><number>-<repoId>`.
	NamespacePrefix string `yaml:"namespacePrefix"`
	// NamespaceTemplate is a file with what every namespace of a preview has: the labels and
	// annotations of a Namespace, ResourceQuotas, LimitRanges and NetworkPolicies. They are there
	// before anything else is; objects of these kinds in manifests are left out of previews.
	// Default: none.
	NamespaceTemplate string `yaml:"namespaceTemplate"`
	// Hosts are the domains below which previews may have their hosts, such as
	// `preview.example.com`.
	// Default: none: no preview has a host.
	Hosts []string `yaml:"hosts"`
	// MaxActive is how many pull requests of one repository have a preview at once. Others wait.
	MaxActive int `yaml:"maxActive"`
	// Interval is the time between two lists of the open pull requests of a repository. A webhook
	// makes it shorter.
	Interval time.Duration `yaml:"interval"`
}

// Default sets the limits.
func (p *Previews) Default() {
	p.NamespacePrefix, p.MaxActive, p.Interval = "preview-", 20, 30*time.Second
}

// maxNamespacePrefix leaves room for the number and a digest in a name of 63 characters.
const maxNamespacePrefix = 32

func (p *Previews) complete(d *strict.Document) *Previews {
	if p == nil {
		return nil
	}
	if why := validation.IsDNS1123Label(p.NamespacePrefix + "1"); why != nil || p.NamespacePrefix == "" || len(p.NamespacePrefix) > maxNamespacePrefix {
		d.Problemf("previews.namespacePrefix", "expected the begin of a name, such as preview-, of at most %d lower-case letters, digits and -, found %q", maxNamespacePrefix, p.NamespacePrefix)
	}
	for i, host := range p.Hosts {
		p.Hosts[i] = strings.TrimPrefix(strings.TrimPrefix(host, "*"), ".")
		if why := validation.IsDNS1123Subdomain(p.Hosts[i]); why != nil {
			d.Problemf(fmt.Sprintf("previews.hosts[%d]", i), "expected a domain such as preview.example.com, found %q", host)
		}
	}
	if p.MaxActive <= 0 {
		d.Problemf("previews.maxActive", "expected a number above 0, found %d", p.MaxActive)
	}
	if p.Interval < time.Second {
		d.Problemf("previews.interval", "expected 1s or more, found %s", p.Interval)
	}
	return p
}

// IsOfPreviewTemplate reports whether a kind limits a namespace, so that it is up to the template of
// namespaces.
func IsOfPreviewTemplate(group, kind string) bool {
	switch kind {
	case "ResourceQuota", "LimitRange":
		return group == ""
	case "NetworkPolicy":
		return group == "networking.k8s.io"
	}
	return false
}

// WidensPreviewTemplate reports whether a kind could undo what the template of namespaces limits:
// rights in the namespace, and network policies of other controllers, which can take precedence over
// those of the template.
func WidensPreviewTemplate(group, kind string) bool {
	return group == "rbac.authorization.k8s.io" || strings.HasSuffix(kind, "NetworkPolicy") && !IsOfPreviewTemplate(group, kind)
}

// Allows reports whether a preview may have a host: it is below one of the domains.
func (p *Previews) Allows(host string) bool {
	return slices.ContainsFunc(p.Hosts, func(domain string) bool { return strings.HasSuffix(host, "."+domain) })
}

// HostOf returns the host of the preview of a pull request, "" if there is none. It is an error if it is
// below none of the domains.
func (p *Previews) HostOf(of Preview, number int) (string, error) {
	host, err := of.HostOf(number)
	if err == nil && host != "" && !p.Allows(host) {
		err = fmt.Errorf("%s is not below a domain of spec.previews.hosts of the agent (%s)", host, strings.Join(p.Hosts, ", "))
	}
	return host, err
}

var noLabel = regexp.MustCompile(`[^a-z0-9-]+`)

// Namespace returns the namespace of the preview of a pull request. It is the name of a DNS label:
// what does not fit is replaced by a digest of the repository's ID.
func (p *Previews) Namespace(repoID string, number int) string {
	return previewLabel(p.NamespacePrefix, repoID, number)
}

// PreviewName returns the name of the preview of a pull request with mode route, which is the value of
// its header. It is the name of a DNS label, as that of a namespace is.
func PreviewName(repoID string, number int) string { return previewLabel("pr-", repoID, number) }

func previewLabel(prefix, repoID string, number int) string {
	const limit = 63
	name := fmt.Sprintf("%s%d-%s", prefix, number, repoID)
	if len(name) <= limit && len(validation.IsDNS1123Label(name)) == 0 {
		return name
	}
	sum := sha256.Sum256([]byte(repoID))
	begin := noLabel.ReplaceAllString(strings.ToLower(name), "-")
	const digits = 8
	begin = strings.TrimRight(begin[:min(len(begin), limit-digits-1)], "-")
	return begin + "-" + hex.EncodeToString(sum[:])[:digits]
}

package helm

import (
	"net/url"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/outbound"
)

// TestFunctionsThatCannotBeInterrupted: what one call of a function may do is
// bounded before it begins, and what charts really do is not.
func TestFunctionsThatCannotBeInterrupted(t *testing.T) {
	for template, want := range map[string]string{
		`{{ until 100000 | uniq | len }}`: "uniq would make up to 10000100000 comparisons",
		`{{ without (until 1000000) 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 | len }}`: "without would make up to",
		`{{ regexMatch "((a{1000}){1}b)" (repeat 900000 "a") }}`:                                                                           "regexMatch would take up to",
		`{{ regexFindAll (repeat 5000 "a?") (repeat 900000 "a") -1 }}`:                                                                     "regexFindAll would take up to",
		`{{ regexReplaceAllLiteral "a{0,900}" (repeat 900000 "a") "" }}`:                                                                   "regexReplaceAllLiteral would take up to",
		`kind: a{{ until 3000 | uniq | len }}`:                                                                                             "",
		`kind: a{{ without (until 100000) 1 2 | len }}`:                                                                                    "",
		`kind: a{{ regexReplaceAll "[^a-z0-9-]{1,63}" (repeat 10000 "a.b") "-" | len }}`:                                                   "",
		`kind: {{ uniq (list "a" "b" "a") | join "" }}{{ uniq 1 }}`:                                                                        "Cannot find uniq on type int",
	} {
		_, err := newRenderer(t).Render(t.Context(), Request{
			Tree: fstest.MapFS{
				"app/chart/Chart.yaml":       {Data: []byte("apiVersion: v2\nname: web\nversion: 1.0.0\n")},
				"app/chart/templates/x.yaml": {Data: []byte("apiVersion: v1\nmetadata: {name: x}\n" + template + "\n")},
			},
			Dir: "app", Chart: kubernetes.HelmChart{Path: "chart"}, ReleaseName: "web",
		})
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", template, err)
		case want != "" && (!deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want %q", template, err, want)
		}
	}
}

// TestMetadataAddressesAreNotAsked: a cloud's machine exposes its secrets there.
func TestMetadataAddressesAreNotAsked(t *testing.T) {
	for address, refused := range map[string]bool{
		"169.254.169.254:80": true, "[fe80::1]:443": true, "[fe80::1%eth0]:80": true, "[::ffff:169.254.169.254]:80": true,
		"[fd00:ec2::254]:80": true, "100.100.100.200:80": true,
		"127.0.0.1:80": false, "[::1]:80": false, "10.0.0.1:443": false, "192.0.2.1:443": false,
	} {
		err := outbound.NotMetadata("tcp", address, nil)
		if (err != nil) != refused {
			t.Errorf("%s: got %v, want it refused: %t", address, err, refused)
		}
		if refused && !deploy.IsKind(unreachable(t.Context(), "x", &url.Error{Err: err}), deploy.Invalid) {
			t.Errorf("%s: another attempt would not succeed", address)
		}
	}
}

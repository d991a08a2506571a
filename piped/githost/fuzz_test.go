package githost

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// FuzzParse: for any request, an unsigned one is denied, an error has a kind and no result,
// and a push is complete.
func FuzzParse(f *testing.F) {
	types := config.WebhookType("").Values()
	for of, files := range deliveries() {
		for name := range files {
			d := load(f, name)
			f.Add(slices.Index(types, string(of)), d.header.Get(receiver(f, of).host.event), d.header.Get("Content-Type"), d.body)
		}
	}
	f.Fuzz(func(t *testing.T, index int, event, contentType string, body []byte) {
		of := config.WebhookType(types[uint(index)%uint(len(types))])
		rc := receiver(t, of)
		d := delivery{http.Header{}, body}
		d.header.Set(rc.host.event, event)
		d.header.Set("Content-Type", contentType)
		push, err := rc.Parse(d.sign(of, secret, body).request())
		switch {
		case err != nil && !deploy.IsKind(err, deploy.Invalid) && !deploy.IsKind(err, deploy.Denied):
			t.Errorf("error %v has kind %v", err, deploy.KindOf(err))
		case err != nil && strings.Contains(err.Error(), secret):
			t.Errorf("error %v shows the secret", err)
		case err != nil && !cmp.Equal(push, Push{}):
			t.Errorf("push %v came with error %v", push, err)
		case (len(push.Branches) == 0 && push.Proposal == nil) != (len(push.Remotes) == 0), push.Ping && len(push.Remotes) > 0:
			t.Errorf("push %v is incomplete", push)
		}
		if push, err := rc.Parse(d.request()); !deploy.IsKind(err, deploy.Denied) && event != bitbucketServerPing {
			t.Errorf("unsigned: push %v, error %v; want kind Denied", push, err)
		}
	})
}

// FuzzSameRepository: the relation is symmetric, and reflexive for all valid remotes.
func FuzzSameRepository(f *testing.F) {
	f.Add("https://github.com/shop/config.git", "git@github.com:shop/config")
	f.Add("ssh://git@[::1]:2222/a", "[::1]:a")
	f.Fuzz(func(t *testing.T, a, b string) {
		same := SameRepository(a, b)
		if same != SameRepository(b, a) {
			t.Errorf("SameRepository(%q, %q) is not symmetric", a, b)
		}
		if same && !SameRepository(a, a) {
			t.Errorf("%q is the same as %q and not as itself", a, b)
		}
	})
}

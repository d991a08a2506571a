package githost

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read, though the header alone had to be refused")
	return 0, io.EOF
}
func (unread) Close() error { return nil }

func macOf(h func() hash.Hash, secret string, data []byte) string {
	m := hmac.New(h, []byte(secret))
	m.Write(data)
	return hex.EncodeToString(m.Sum(nil))
}

// pushes returns one delivery of each type that is accepted when signed.
func pushes() map[config.WebhookType]string {
	return map[config.WebhookType]string{
		config.WebhookGitHub:    "github-push-to-a-branch",
		config.WebhookGitLab:    "gitlab-push-to-a-branch",
		config.WebhookGitea:     "gitea-push-to-a-branch",
		config.WebhookBitbucket: "bitbucket-cloud-push-to-several-branches",
	}
}

func TestSignatures(t *testing.T) {
	type change struct {
		early  bool // rejected before the body is read
		change func(h http.Header, body []byte)
	}
	set := func(early bool, name string, value func(body []byte) string) change {
		return change{early, func(h http.Header, body []byte) { h.Set(name, value(body)) }}
	}
	text := func(s string) func([]byte) string { return func([]byte) string { return s } }
	sha1Of := func(body []byte) string { return "sha1=" + macOf(sha1.New, secret, body) }
	tests := map[config.WebhookType]map[string]change{
		config.WebhookGitHub: {
			"only SHA-1": {true, func(h http.Header, body []byte) {
				h.Del("X-Hub-Signature-256")
				h.Set("X-Hub-Signature", sha1Of(body))
			}},
			"SHA-1 in the other's place":   set(true, "X-Hub-Signature-256", sha1Of),
			"SHA-512 in the other's place": set(true, "X-Hub-Signature-256", func(body []byte) string { return "sha512=" + macOf(sha512.New, secret, body) }),
			"no algorithm":                 set(true, "X-Hub-Signature-256", func(body []byte) string { return mac(secret, body) }),
			"algorithm alone":              set(true, "X-Hub-Signature-256", text("sha256=")),
			"no digits":                    set(true, "X-Hub-Signature-256", text("sha256="+strings.Repeat("zz", 32))),
			"too short":                    set(true, "X-Hub-Signature-256", func(body []byte) string { return "sha256=" + mac(secret, body)[:32] }),
			"empty":                        set(true, "X-Hub-Signature-256", text("")),
			"of another secret":            set(false, "X-Hub-Signature-256", func(body []byte) string { return "sha256=" + mac("another", body) }),
			"of an empty secret":           set(false, "X-Hub-Signature-256", func(body []byte) string { return "sha256=" + mac("", body) }),
			"of another body":              set(false, "X-Hub-Signature-256", func([]byte) string { return "sha256=" + mac(secret, []byte("{}")) }),
		},
		config.WebhookGitLab: {
			"no token":             {true, func(h http.Header, _ []byte) { h.Del("X-Gitlab-Token") }},
			"empty token":          set(true, "X-Gitlab-Token", text("")),
			"another token":        set(true, "X-Gitlab-Token", text("another")),
			"beginning of a token": set(true, "X-Gitlab-Token", text(secret[:len(secret)-1])),
			"more than the token":  set(true, "X-Gitlab-Token", text(secret+"!")),
		},
		config.WebhookGitea: {
			"none": {true, func(h http.Header, _ []byte) {
				h.Del("X-Gitea-Signature")
				h.Del("X-Hub-Signature-256")
			}},
			"SHA-1 in the other's place": set(true, "X-Gitea-Signature", sha1Of),
			"of another secret":          set(false, "X-Gitea-Signature", func(body []byte) string { return mac("another", body) }),
			"as an unset secret has it": {true, func(h http.Header, _ []byte) {
				h.Set("X-Gitea-Signature", "")
				h.Set("X-Hub-Signature-256", "sha256=")
			}},
		},
		config.WebhookBitbucket: {
			"none":              {true, func(h http.Header, _ []byte) { h.Del("X-Hub-Signature") }},
			"SHA-1":             set(true, "X-Hub-Signature", sha1Of),
			"no algorithm":      set(true, "X-Hub-Signature", func(body []byte) string { return mac(secret, body) }),
			"of another secret": set(false, "X-Hub-Signature", func(body []byte) string { return "sha256=" + mac("another", body) }),
			"in the header of GitHub": {true, func(h http.Header, body []byte) {
				h.Set("X-Hub-Signature-256", h.Get("X-Hub-Signature"))
				h.Del("X-Hub-Signature")
			}},
		},
	}
	for of, changes := range tests {
		for name, tc := range changes {
			t.Run(string(of)+" "+name, func(t *testing.T) {
				d := load(t, pushes()[of])
				r := d.sign(of, secret, d.body).request()
				tc.change(r.Header, d.body)
				if tc.early {
					r.Body = unread{t}
				}
				push, err := receiver(t, of).Parse(r)
				if !deploy.IsKind(err, deploy.Denied) {
					t.Errorf("push %v, error %v; want kind Denied", push, err)
				}
			})
		}
	}
}

func TestForgejoSignatures(t *testing.T) {
	d := load(t, "forgejo-push-to-a-branch")
	for name, value := range map[string]string{
		"X-Gitea-Signature": mac(secret, d.body), "X-Forgejo-Signature": mac(secret, d.body), "X-Hub-Signature-256": "sha256=" + mac(secret, d.body),
	} {
		t.Run(name+" alone is enough", func(t *testing.T) {
			r := d.request()
			r.Header.Set(name, value)
			if _, err := receiver(t, config.WebhookGitea).Parse(r); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestBitbucketConnectionTest: Data Center sends it unsigned.
func TestBitbucketConnectionTest(t *testing.T) {
	d := load(t, "bitbucket-server-connection-test")
	r := d.request()
	r.Body = unread{t}
	push, err := receiver(t, config.WebhookBitbucket).Parse(r)
	if err != nil || !push.Ping {
		t.Errorf("unsigned: push %v, error %v; want a ping", push, err)
	}
	_, err = receiver(t, config.WebhookBitbucket).Parse(d.sign(config.WebhookBitbucket, "another", d.body).request())
	if !deploy.IsKind(err, deploy.Denied) {
		t.Errorf("signed with another secret: error %v, want kind Denied", err)
	}
	push, err = receiver(t, config.WebhookBitbucket).Parse(load(t, "bitbucket-server-push-to-several-branches").request())
	if !deploy.IsKind(err, deploy.Denied) {
		t.Errorf("unsigned push: push %v, error %v; want kind Denied", push, err)
	}
}

func TestEmptySecretIsRefused(t *testing.T) {
	for _, of := range config.WebhookType("").Values() {
		for name, s := range map[string]strict.Secret{"none": {}, "empty": strict.NewSecret(""), "blank": strict.NewSecret(" \n")} {
			t.Run(of+" "+name, func(t *testing.T) {
				if r, err := New(config.WebhookType(of), s); r != nil || !deploy.IsKind(err, deploy.Invalid) {
					t.Errorf("New returned %v, %v; want an error of kind Invalid", r, err)
				}
			})
		}
	}
}

func TestUnknownTypeIsRefused(t *testing.T) {
	want := `webhook type "GOGS" is not known; expected GITHUB, GITLAB, GITEA or BITBUCKET`
	if _, err := New("GOGS", strict.NewSecret(secret)); !deploy.IsKind(err, deploy.Invalid) || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestBodyErrorsAreWrapped: the server decides by the cause why reading ended.
func TestBodyErrorsAreWrapped(t *testing.T) {
	for of, file := range pushes() {
		t.Run(string(of), func(t *testing.T) {
			d := load(t, file)
			r := d.sign(of, secret, d.body).request()
			r.Body = http.MaxBytesReader(nil, r.Body, 10)
			_, err := receiver(t, of).Parse(r)
			var tooLarge *http.MaxBytesError
			if !errors.As(err, &tooLarge) || !deploy.IsKind(err, deploy.Invalid) {
				t.Errorf("error %v, want one of kind Invalid that wraps *http.MaxBytesError", err)
			}
		})
	}
}

// TestNothingSecretIsShown: no error contains the secret, a signature, or the payload.
func TestNothingSecretIsShown(t *testing.T) {
	const inPayload = "a-payload-word"
	for _, of := range config.WebhookType("").Values() {
		of := config.WebhookType(of)
		d := load(t, pushes()[of])
		rc := receiver(t, of)
		if text := fmt.Sprintf("%v %+v %#v", rc, *rc, *rc); strings.Contains(text, secret) {
			t.Errorf("%s: a printed receiver shows the secret", of)
		}
		for name, body := range map[string]string{"no JSON": inPayload, "wrong type": `{"ref": {"` + inPayload + `": 1}, "push": "` + inPayload + `"}`} {
			d.body = []byte(body)
			for by, key := range map[string]string{"the secret": secret, "a near secret": secret + "x"} {
				r := d.sign(of, key, d.body).request()
				_, err := rc.Parse(r)
				if err == nil {
					t.Errorf("%s %s, by %s: accepted", of, name, by)
					continue
				}
				for what, text := range map[string]string{"secret": secret, "signature": mac(key, d.body), "payload": inPayload} {
					if strings.Contains(fmt.Sprintf("%v %+v", err, err), text) {
						t.Errorf("%s %s, by %s: the error shows the %s: %v", of, name, by, what, err)
					}
				}
			}
		}
	}
}

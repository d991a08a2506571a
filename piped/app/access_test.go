package app

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/access/signin/signintest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// signedInBrowser is a browser at the web server of an agent.
type signedInBrowser struct {
	t    *testing.T
	http *http.Client
	base string
}

// post sends a form or JSON, follows redirects and returns the last status and body.
func (b signedInBrowser) post(path, contentType, body string) (int, string) {
	b.t.Helper()
	resp, err := b.http.Post(b.base+path, contentType, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// applications returns the names that ListApplications returns, or its status.
func (b signedInBrowser) applications() []string {
	b.t.Helper()
	status, body := b.post("/api/v1/grpc.service.apiservice.APIService/ListApplications", "application/json", "{}")
	if status != http.StatusOK {
		return []string{http.StatusText(status)}
	}
	var list struct{ Applications []struct{ Name string } }
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		b.t.Fatalf("%s: %v", body, err)
	}
	var names []string
	for _, a := range list.Applications {
		names = append(names, a.Name)
	}
	return names
}

// TestUsersSignIn: a user of GitHub signs in, sees what the user's team may see, loses it with
// a changed configuration, and signs out. The holder of the owner key signs in without any
// issuer.
func TestUsersSignIn(t *testing.T) {
	t.Parallel()
	s := spec{dataDir: t.TempDir()}
	agent := runReloading(t, s, 10*time.Millisecond)
	putApplications(t, s.dataDir, "web", "search")
	github := signintest.NewGitHub(t)
	issuer := github.Config(t, "github")
	base := "http://" + agent.app.WebAddr()
	configure := func(team string) {
		t.Helper()
		s.more = fmt.Sprintf(`  access:
    externalURL: %s
    issuers: [{name: github, type: GITHUB, apiURL: %q, clientID: %s, clientSecretFile: %s}]
    roles: [{name: viewer, groups: [%s], applications: {names: ["w*"]}}]
`, base, issuer.APIURL, issuer.ClientID, issuer.ClientSecretFile, team)
		agent.write(s, inEffect, "changed=access")
	}
	configure("acme/payments")
	browser := func() signedInBrowser {
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		return signedInBrowser{t, &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}, base}
	}
	want := func(what string, b signedInBrowser, names ...string) {
		t.Helper()
		if diff := cmp.Diff(names, b.applications()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}

	ann := browser()
	want("before the sign-in", ann, "Unauthorized")
	resp, err := ann.http.Get(base + "/sign-in/github")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	want("a member of the team", ann, "web")
	configure("acme/search")
	want("after the role went to another team", ann, "Forbidden")
	configure("acme/payments")
	want("after it came back", ann, "web")
	if status, _ := ann.post("/sign-out", "application/x-www-form-urlencoded", ""); status != http.StatusOK {
		t.Errorf("sign-out: %d", status)
	}
	want("after the sign-out", ann, "Unauthorized")

	key, err := os.ReadFile(filepath.Join(s.dataDir, ownerKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	owner := browser()
	owner.post("/sign-in/key", "application/x-www-form-urlencoded", url.Values{"key": {strings.TrimSpace(string(key))}}.Encode())
	if got := owner.applications(); len(got) != 2 {
		t.Errorf("the owner sees %v", got)
	}
}

// putApplications stores applications without a repository.
func putApplications(t *testing.T, dataDir string, names ...string) {
	t.Helper()
	st, err := store.Open(t.Context(), "sqlite://"+filepath.Join(dataDir, "piped.db"), store.Options{Existing: true})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for _, name := range names {
		app := deploy.Application{ID: "app-" + name, Name: name, Kind: deploy.KindKubernetes, Git: deploy.GitPath{RepoID: "apps", Dir: name, ConfigFile: "app.pipecd.yaml"}}
		if _, err := st.PutApplication(t.Context(), app); err != nil {
			t.Fatal(err)
		}
	}
}

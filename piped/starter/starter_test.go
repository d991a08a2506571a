package starter

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
)

// kubeconfig returns a kubeconfig with contexts; the cluster and the user of each have its name.
func kubeconfig(current string, contexts ...string) string {
	text := "apiVersion: v1\nkind: Config\ncurrent-context: " + current + "\n"
	for _, part := range []string{"clusters: [%s]\n", "users: [%s]\n", "contexts: [%s]\n"} {
		var entries []string
		for _, c := range contexts {
			switch part[:1] {
			case "u":
				entries = append(entries, fmt.Sprintf("{name: %s, user: {token: t}}", c))
			default:
				entries = append(entries, fmt.Sprintf("{name: %s, cluster: {server: \"https://127.0.0.1:1\"}, context: {cluster: %s, user: %s}}", c, c, c))
			}
		}
		text += fmt.Sprintf(part, strings.Join(entries, ", "))
	}
	return text
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestCluster: the cluster is that of kubectl, with the context of now.
func TestCluster(t *testing.T) {
	dir := t.TempDir()
	one, two := write(t, dir, "one", kubeconfig("b", "a", "b")), write(t, dir, "two", kubeconfig("c", "c"))
	empty := write(t, dir, "empty", kubeconfig(""))
	split := write(t, dir, "split", "apiVersion: v1\nkind: Config\ncurrent-context: s\ncontexts: [{name: s, context: {cluster: c, user: a}}]\n")
	for _, c := range []struct {
		name, environment, flag, context string
		want                             Cluster
		problem                          string
	}{
		{name: "the current context", environment: one, want: Cluster{one, "b"}},
		{name: "another context", environment: one, context: "a", want: Cluster{one, "a"}},
		{name: "the first of several files decides", environment: one + ":" + two, want: Cluster{one, "b"}},
		{name: "a context of the second file", environment: one + ":" + two, context: "c", want: Cluster{two, "c"}},
		{name: "the flag has precedence", environment: one, flag: two, want: Cluster{two, "c"}},
		{name: "an unknown context", environment: one, context: "z", problem: `no context "z": choose one with --context: a, b`},
		{name: "no context at all", environment: empty, problem: "name a kubeconfig with --kubeconfig"},
		{name: "no file", environment: filepath.Join(dir, "none"), problem: "name a kubeconfig with --kubeconfig"},
		{name: "no file of the flag", flag: filepath.Join(dir, "none"), problem: "no such file"},
		{name: "spread over files", environment: split + ":" + two + ":" + one, problem: "write all of it to one file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", c.environment)
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			got, err := FindCluster(c.flag, c.context)
			if c.problem != "" {
				if !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), c.problem) {
					t.Errorf("%v, want %q", err, c.problem)
				}
				return
			}
			if got != c.want || err != nil {
				t.Errorf("%+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

// TestNew completes the options of a user, and refuses what makes no sense.
func TestNew(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("KUBECONFIG", write(t, dir, "config", kubeconfig("a", "a")))
	if _, err := gittest.NewRepo(filepath.Join(dir, "team apps.git")); err != nil {
		t.Fatal(err)
	}
	c, err := New(t.Context(), Options{Repo: "team apps.git", Path: "./clusters/prod/", DataDir: "data", GitPasswordFile: write(t, dir, "token", "t0ken\n")})
	if err != nil {
		t.Fatal(err)
	}
	want := Configuration{
		RepoID: "team-apps", Remote: filepath.Join(dir, "team apps.git"), Branch: gittest.Branch, Path: "clusters/prod",
		Cluster: Cluster{filepath.Join(dir, "config"), "a"}, DataDir: filepath.Join(dir, "data"), GitPassword: "dDBrZW4=",
	}
	if c != want {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	for repo, id := range map[string]string{
		"https://git.example.com/team/apps.git": "apps", "git@git.example.com:team/apps": "apps", "git@git.example.com:apps.git": "apps",
		"ssh://git@host:22/~me/x y/": "x-y", "https://host/": "host", "https://host/..": "repository",
	} {
		if got := RepoID(repo); got != id {
			t.Errorf("the ID of %s is %q, want %q", repo, got, id)
		}
	}
	for problem, o := range map[string]Options{
		"--path":              {Repo: "team apps.git", Path: "clusters/*"},
		"--git-password-file": {Repo: "team apps.git", GitPasswordFile: "none"},
		"read the HEAD":       {Repo: "nowhere"},
	} {
		if _, err := New(t.Context(), o); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%+v: %v, want %q", o, err, problem)
		}
	}
}

func TestContains(t *testing.T) {
	for dir, in := range map[string]bool{"clusters/prod": true, "clusters/prod/web": true, "clusters/production": false, "": false} {
		if (Configuration{Path: "clusters/prod"}).Contains(dir) != in {
			t.Errorf("%q: not %v", dir, in)
		}
	}
	if !(Configuration{}).Contains("") {
		t.Error("all of the repository does not contain its root")
	}
}

// TestFileKeepsEveryText: whatever a value contains, the file has it as it is.
func TestFileKeepsEveryText(t *testing.T) {
	for _, text := range []string{"plain", "two words", "a: b", "#hash", "yes", "1e3", "'\"\\", "{{.Branch}}", "line\nline", "%tag", "*alias", "- x", "ünï", strings.Repeat("long ", 60) + "end"} {
		c := Configuration{RepoID: text, Remote: text, Branch: text, Path: text, DataDir: text, GitUsername: text, GitPassword: text, SSHKeyFile: text, APIAddress: text, WebAddress: text, Cluster: Cluster{text, text}}
		made, err := c.File()
		if err != nil {
			t.Fatal(err)
		}
		var file struct{ Spec map[string]any }
		if err := yaml.Unmarshal([]byte(made), &file); err != nil {
			t.Errorf("%q: %v\n%s", text, err, made)
			continue
		}
		repository := file.Spec["repositories"].([]any)[0].(map[string]any)
		provider := file.Spec["platformProviders"].([]any)[0].(map[string]any)
		git := file.Spec["git"].(map[string]any)
		for name, got := range map[string]any{
			"repoId": repository["repoId"], "remote": repository["remote"], "branch": repository["branch"], "dataDir": file.Spec["dataDir"],
			"username": git["username"], "password": git["password"], "sshKeyFile": git["sshKeyFile"],
			"api": file.Spec["api"].(map[string]any)["address"], "web": file.Spec["web"].(map[string]any)["address"],
			"kubeConfigPath": provider["config"].(map[string]any)["kubeConfigPath"], "context": provider["config"].(map[string]any)["context"],
		} {
			if got != text {
				t.Errorf("%s is %#v, want %q", name, got, text)
			}
		}
		if paths := repository["discover"].(map[string]any)["paths"].([]any); len(paths) != 1 || paths[0] != text+"/**" {
			t.Errorf("paths %q, want those below %q", paths, text)
		}
	}
}

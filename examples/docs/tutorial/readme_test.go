package tutorial

import (
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/examples/programs"
	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/git/gittest"
)

// What the first commands of README.md say of the reader's own: the repository, a
// directory of it, and the namespace that the application gets.
const (
	readmeRepo      = "https://git.example.com/team/apps.git"
	readmeDir       = "web"
	readmeNamespace = "shop"
)

// TestReadme: the first commands of README.md, in their order, bring an application of a
// repository into a cluster, on a machine that has nothing but access to both. It prints
// how long that took after the build.
func TestReadme(t *testing.T) {
	cluster := clustertest.Shared(t)
	home := newMachine(t, cluster)
	api, web, err := agenttest.FreeAddresses()
	if err != nil {
		t.Fatal(err)
	}
	own := strings.NewReplacer(readmeRepo, repositoryWithManifests(t), "piped run --repo $REPO &", "piped run --repo $REPO --api-address "+api+" --web-address "+web+" &")
	commands := firstCommands(t, "../../../README.md")
	t.Setenv("TMPDIR", t.TempDir()) // for mktemp
	sh := startShell(t, home, "/nowhere")
	began, link, printed := time.Now(), "", ""
	for _, command := range commands {
		one := time.Now()
		printed = runAsUser(t, sh, own.Replace(command))
		if strings.HasSuffix(command, "&") {
			link = awaitLink(t, sh, printed)
		}
		t.Logf("%6.2fs  $ %s\n%s", time.Since(one).Seconds(), command, printed)
	}
	took := time.Since(began)
	if took > time.Minute {
		t.Errorf("it took %s, want at most a minute", took)
	}
	if !strings.Contains(printed, "Deployment") || !strings.Contains(printed, "Pod") {
		t.Errorf("the client does not show what runs:\n%s", printed)
	}
	live, err := cluster.Client(t).AppsV1().Deployments(readmeNamespace).Get(t.Context(), "simple", metav1.GetOptions{})
	if err != nil || live.Status.AvailableReplicas != 3 {
		t.Errorf("the cluster has %d of 3 replicas: %v", live.Status.AvailableReplicas, err)
	}
	if page := pageOf(t, link, "http://"+web+"/applications"); !regexp.MustCompile(`>\s*` + readmeDir + `\s*<`).MatchString(page) {
		t.Errorf("the page does not show the application:\n%s", page)
	}
	if printed, code := sh.run(t, "kill %1; wait"); code != 0 { // it releases the cluster for the agent of the next test
		t.Errorf("the agent ends with %d:\n%s", code, printed)
	}
	t.Logf("from a repository to an application that is live: %.1fs in %d commands, after the build", took.Seconds(), len(commands))
}

// runAsUser runs a command and returns what it prints. One of the client is repeated for
// a while if it fails: on a busy machine the agent may not have found the commit yet, which
// a user who types has no chance to see.
func runAsUser(t *testing.T, sh *shell, command string) string {
	t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		printed, code := sh.run(t, command)
		if code == 0 {
			return printed
		}
		if !strings.HasPrefix(command, "pipectl ") || time.Since(began) > time.Minute {
			t.Fatalf("%s: exit code %d\n%s", command, code, printed)
		}
	}
}

// newMachine returns the home of a user with access to the cluster and a name for
// commits, and nothing else but what `make build` results in, which is not repeated.
func newMachine(t *testing.T, cluster *clustertest.Cluster) string {
	t.Helper()
	home := t.TempDir()
	kubeconfig, err := os.ReadFile(cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(os.Mkdir(filepath.Join(home, ".kube"), 0o700), os.WriteFile(filepath.Join(home, ".kube", "config"), kubeconfig, 0o600),
		os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[user]\n\tname = Jane\n\temail = jane@example.com\n"), 0o600),
		os.Symlink(programs.Dir(t), filepath.Join(home, "bin")))
	if err != nil {
		t.Fatal(err)
	}
	return home
}

// repositoryWithManifests returns a repository to which the user pushes: manifests as the
// user had them before.
func repositoryWithManifests(t *testing.T) string {
	t.Helper()
	repo := gittest.New(t)
	if err := repo.CopyDir(os.DirFS("../../apps/simple"), readmeDir); err != nil {
		t.Fatal(err)
	}
	if err := repo.Remove(readmeDir + "/app.pipecd.yaml"); err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Commit("Begin"); err != nil {
		t.Fatal(err)
	}
	return repo.Dir
}

// firstCommands returns the commands of the first block of a page without their comments,
// but for the build, with which they have to begin.
func firstCommands(t *testing.T, page string) (commands []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```sh\n")
	block, _, _ := strings.Cut(rest, "```")
	for line := range strings.Lines(block) {
		command, _, _ := strings.Cut(line, " #")
		commands = append(commands, strings.TrimSpace(command))
	}
	if len(commands) < 5 || commands[0] != "make build" {
		t.Fatalf("the first commands are %q", commands)
	}
	return commands[1:]
}

// awaitLink waits, as the user does, until the agent has printed the link to its page.
func awaitLink(t *testing.T, sh *shell, printed string) string {
	t.Helper()
	link := regexp.MustCompile(`(?m)^page +(http://\S+)`)
	for timeout := time.After(time.Minute); ; {
		if found := link.FindStringSubmatch(printed); found != nil {
			return found[1]
		}
		select {
		case line, open := <-sh.lines:
			if !open {
				t.Fatalf("the shell has ended:\n%s", printed)
			}
			printed += line + "\n"
		case <-timeout:
			t.Fatalf("the agent has printed no link:\n%s", printed)
		}
	}
}

// pageOf signs a browser in with a link, and returns the text of an address.
func pageOf(t *testing.T, link, address string) string {
	t.Helper()
	u, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}
	signedIn, err := browser.PostForm(u.Scheme+"://"+u.Host+u.Path, url.Values{"ticket": {u.Query().Get("ticket")}})
	if err != nil {
		t.Fatal(err)
	}
	_ = signedIn.Body.Close()
	resp, err := browser.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s: %v", address, resp.Status, err)
	}
	return string(text)
}

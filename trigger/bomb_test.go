package trigger

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
)

// TestAHeadThatIsTooLargeLeavesTheLastGoodOneInEffect pushes commits with more than is
// read: what was there before goes on to be deployed, and the problem names the path.
func TestAHeadThatIsTooLargeLeavesTheLastGoodOneInEffect(t *testing.T) {
	packs := map[string][]byte{}
	push := func(parent string, more ...gittest.Entry) string {
		p := &gittest.Pack{}
		file, _ := p.Blob([]byte(appFile("web")))
		entries := []gittest.Entry{{Mode: "100644", Name: "app.pipecd.yaml", Hash: file}}
		for _, e := range more {
			if e.Hash == "" {
				e = appsBelow(p, e.Name)
			} else if e.Hash == "nested" {
				e.Hash = p.Nested(9, 10)
			}
			entries = append(entries, e)
		}
		parents := strings.Fields(parent)
		commit := p.Commit(p.Tree(gittest.Entry{Mode: "40000", Name: "web", Hash: p.Tree(entries...)}), parents...)
		packs[commit] = p.Bytes()
		return commit
	}
	good := push("")
	nested := push(good, gittest.Entry{Mode: "40000", Name: "deep", Hash: "nested"})
	many := push(good, gittest.Entry{Mode: "40000", Name: "many"})
	text, _ := (&gittest.Pack{}).Blob([]byte(appFile("web")))
	after := push(nested, gittest.Entry{Mode: "100644", Name: "readme.md", Hash: text})

	server := gittest.ServePacks(t, packs)
	server.Set(gittest.Branch, good)
	l := newEnv(t, func(l *env, _ *Config) { l.config.Remote = server.URL })
	l.poll()
	first := l.deployments("web")
	if diff := cmp.Diff([]string{"commit PENDING"}, first); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
	for commit, want := range map[string]string{
		nested: "web/deep/n00/",
		many:   "web/many/d16/d00/",
	} {
		server.Set(gittest.Branch, commit)
		for range 2 {
			l.poll()
		}
		problem := l.trigger.Problem("apps")
		if problem == nil || !strings.Contains(problem.Err.Error(), want) || !strings.Contains(problem.Err.Error(), "stays in effect") {
			t.Errorf("%s: the problem is %v, want it to name %s", want, problem, want)
		}
		id := l.askSync("web")
		l.poll()
		l.wantNoneOpen()
		if got := l.command(id); got.Status != deploy.CommandSucceeded {
			t.Errorf("%s: a sync of the last good commit is answered with %s %v", want, got.Status, got.Metadata)
		}
		all := l.all("web")
		if got := all[len(all)-1].Trigger.Commit.Hash; got != good {
			t.Errorf("%s: the sync is of commit %s, want %s", want, got, good)
		}
		if n := server.Sent(commit); n > 1 {
			t.Errorf("%s: the commit was fetched %d times, want once", want, n)
		}
	}
	server.Set(gittest.Branch, after)
	l.poll()
	if problem := l.trigger.Problem("apps"); problem != nil {
		t.Errorf("the branch holds a good commit again, and the problem is %v", problem.Err)
	}
	all := l.all("web")
	if got := all[len(all)-1].Trigger.Commit.Hash; got != after {
		t.Errorf("the last deployment is of commit %s, want that of the good commit %s", got, after)
	}
}

// appsBelow returns a directory of that name with more configurations than are read, all
// of them one file.
func appsBelow(p *gittest.Pack, name string) gittest.Entry {
	file, _ := p.Blob([]byte(appFile("x")))
	below := gittest.Entry{Mode: "100644", Name: "app.pipecd.yaml", Hash: file}
	for range 3 {
		var entries []gittest.Entry
		for n := range 25 {
			e := below
			if e.Mode == "40000" {
				e.Name = fmt.Sprintf("d%02d", n)
			} else {
				e.Name = fmt.Sprintf("a%02d.pipecd.yaml", n)
			}
			entries = append(entries, e)
		}
		below = gittest.Entry{Mode: "40000", Hash: p.Tree(entries...)}
	}
	return gittest.Entry{Mode: "40000", Name: name, Hash: below.Hash}
}

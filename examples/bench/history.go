package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
)

const (
	historyRepos     = 20
	historyCommits   = 16 // of a history; each adds a file that the next one replaces
	historyNamespace = "bench-history"
	historyPause     = 600 * time.Millisecond // between commits: 100 a minute
	historyFor       = time.Minute
)

// historyBench is an agent with repositories whose history has a size.
type historyBench struct {
	*environment
	*scene
	name     string
	mib      int
	repos    []*gittest.Repo
	servers  []*gittest.HTTPServer
	received atomic.Int64 // bytes that the servers sent
}

// historyCost is what a commit cost, in the mean.
type historyCost struct{ bytes, cpu float64 }

// measureHistory follows 20 repositories over HTTP whose history has a MiB each, then 20 with a GiB each:
// how long it takes until the agent has cloned them, what it receives, stores and needs for that, and
// what each of 100 commits a minute costs, which must not depend on the history.
func measureHistory(ctx context.Context, e *environment) error {
	if _, err := e.client(ctx, historyNamespace); err != nil {
		return err
	}
	short, err := e.history(ctx, 1)
	if err != nil {
		return fmt.Errorf("short histories: %w", err)
	}
	long, err := e.history(ctx, e.historyMiB)
	if err != nil {
		return fmt.Errorf("long histories: %w", err)
	}
	e.ratio("history.bytes_per_commit.long_to_short", long.bytes, short.bytes, 1.2)
	e.atMost("history.cpu_per_commit.long_to_short", long.cpu/short.cpu, "x", 1.2)
	return nil
}

func (e *environment) history(ctx context.Context, mib int) (c historyCost, err error) {
	b := &historyBench{environment: e, name: fmt.Sprintf("history-%d", mib), mib: mib}
	defer func() {
		for _, s := range b.servers {
			err = errors.Join(err, s.Close())
		}
		err = errors.Join(err, os.RemoveAll(filepath.Join(e.dir, b.name)))
	}()
	if err := b.serve(ctx); err != nil {
		return c, err
	}
	if err := b.clone(ctx); err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, b.agent.Close()) }()
	return b.follow(ctx)
}

// serve makes and serves the repositories. They share the files of their history.
func (b *historyBench) serve(ctx context.Context) error {
	template, err := b.newRepo(b.name + "/template")
	if err != nil {
		return err
	}
	source := rand.NewChaCha8([32]byte{})
	for i := range historyCommits {
		content := make([]byte, b.mib<<20/historyCommits)
		_, _ = source.Read(content) // never fails
		if err := template.Write(map[string]string{"data.bin": string(content)}); err != nil {
			return err
		}
		if _, err := template.Commit(fmt.Sprint("data ", i)); err != nil {
			return err
		}
	}
	if err := template.Remove("data.bin"); err != nil {
		return err
	}
	if _, err := template.Commit("no data"); err != nil {
		return err
	}
	repack := exec.CommandContext(ctx, "git", "-C", template.Dir, "-c", "safe.directory=*", "-c", "pack.compression=0", "-c", "core.bigFileThreshold=64k", "repack", "-adq")
	if text, err := repack.CombinedOutput(); err != nil {
		return fmt.Errorf("pack the history: %w: %s", err, text)
	}
	for i := range historyRepos {
		dir := filepath.Join(b.dir, b.name, fmt.Sprintf("repo-%02d", i))
		if err := link(template.Dir, dir); err != nil {
			return err
		}
		repo, err := gittest.NewRepo(dir)
		if err != nil {
			return err
		}
		server, err := gittest.ServeHTTP(dir, gittest.HTTPOptions{})
		if err != nil {
			return err
		}
		server.SetFault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			next.ServeHTTP(countedWriter{w, &b.received}, r)
		})
		b.repos, b.servers = append(b.repos, repo), append(b.servers, server)
	}
	return nil
}

// link copies a repository. Packs, which never change, are linked.
func link(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		switch {
		case entry.IsDir():
			return os.MkdirAll(target, 0o755)
		case strings.Contains(path, "/objects/"):
			return os.Link(path, target)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o644)
	})
}

// countedWriter counts what a server sends.
type countedWriter struct {
	http.ResponseWriter
	sent *atomic.Int64
}

func (w countedWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.sent.Add(int64(n))
	return n, err
}

// clone starts the agent and waits until it has deployed an application of each repository.
func (b *historyBench) clone(ctx context.Context) error {
	commits := map[string]bool{}
	for i := range b.repos {
		commit, err := b.change(i, "first")
		if err != nil {
			return err
		}
		commits[commit] = true
	}
	var others []string
	for _, s := range b.servers[1:] {
		others = append(others, s.URL)
	}
	b.scene = &scene{repo: b.repos[0]}
	began := time.Now()
	var err error
	b.agent, err = b.start(ctx, b.name, b.repo, agenttest.Options{Interval: fleetInterval, Remote: b.servers[0].URL, Repos: others})
	if err != nil {
		return err
	}
	last, err := b.deployed(ctx, commits, historyRepos)
	if err != nil {
		return errors.Join(err, b.agent.Close())
	}
	return b.reportClones(last.Sub(began))
}

func (b *historyBench) reportClones(took time.Duration) error {
	c, err := b.costOf(took)
	if err != nil {
		return err
	}
	disk, err := diskOf(b.agent, "")
	if err != nil {
		return err
	}
	name := fmt.Sprintf("history.%d_mib", b.mib)
	b.info(name+".cloned", seconds(c.took), "s")
	b.info(name+".cloned.cpu", seconds(c.cpu), "s")
	b.info(name+".cloned.received", float64(b.received.Load())/(1<<20), "MiB")
	b.info(name+".cloned.disk", disk, "MiB")
	b.info(name+".cloned.peak_rss", c.peak, "MiB")
	return nil
}

// follow commits to one repository after the other.
func (b *historyBench) follow(ctx context.Context) (c historyCost, err error) {
	if err := atRest(ctx, b.agent.PID(), fleetInterval); err != nil {
		return c, err
	}
	before, err := cpuTime(b.agent.PID())
	if err != nil {
		return c, err
	}
	received, n := b.received.Load(), int(historyFor/historyPause)
	commits, pushed, err := paced(ctx, n, historyPause, func(i int) (string, error) {
		return b.change(i%historyRepos, fmt.Sprint("change ", i))
	})
	if err != nil {
		return c, err
	}
	var seen []time.Duration
	for i, commit := range commits {
		d, err := b.succeeded(ctx, b.id(i%historyRepos), commit)
		if err != nil {
			return c, err
		}
		seen = append(seen, created(d).Sub(pushed[i]))
	}
	after, err := cpuTime(b.agent.PID())
	if err != nil {
		return c, err
	}
	c = historyCost{float64(b.received.Load()-received) / float64(n), milliseconds(after-before) / float64(n)}
	name := fmt.Sprintf("history.%d_mib", b.mib)
	b.info(name+".bytes_per_commit", c.bytes/1024, "KiB")
	b.info(name+".cpu_per_commit", c.cpu, "ms")
	b.info(name+".push_to_created.p50", milliseconds(median(seen)), "ms")
	b.info(name+".push_to_created.worst", milliseconds(worst(seen)), "ms")
	return c, nil
}

// change commits another content of the application of a repository.
func (b *historyBench) change(repo int, text string) (string, error) {
	name := fmt.Sprintf("%s-%02d", b.name, repo)
	if err := b.repos[repo].Write(map[string]string{
		"app/app.pipecd.yaml": fmt.Sprintf(applicationConfig, name),
		"app/objects.yaml":    fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\ndata: {text: %q}\n", name, historyNamespace, text),
	}); err != nil {
		return "", err
	}
	return b.repos[repo].Commit(text)
}

// id returns the ID of the application of a repository.
func (b *historyBench) id(repo int) string {
	return deploy.ApplicationID(deploy.GitPath{RepoID: repoID(repo), Dir: "app", ConfigFile: "app.pipecd.yaml"})
}

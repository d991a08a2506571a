package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
)

const (
	fleetRepos    = 20
	fleetFew      = 2 // applications of each repository, of the floor
	fleetChanged  = 100
	fleetInterval = 2 * time.Second // between polls, and between commits at the steady load of 30 a minute
	fleetPatience = time.Hour
)

// providerConfig is the configuration of an application: its name and its platform provider.
const providerConfig = `apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec: {name: %s, platformProvider: %s}
`

// wholeFleet is one run of measureFleet: an agent with many repositories, whose applications have
// ten objects each, on two clusters in turn.
type wholeFleet struct {
	*environment
	*scene
	share  fleet // of each repository
	repos  []*gittest.Repo
	second *clustertest.Cluster
}

// measureFleet measures an agent with 5,000 applications in 20 repositories on two clusters: their first
// sync, a commit in each repository that touches all and changes nothing, how soon a restarted agent
// knows all of them, how soon it reports drift, and a steady load of 30 deployments a minute. Its floor
// is the same agent with 40 applications.
func measureFleet(ctx context.Context, e *environment) (err error) {
	few := &wholeFleet{environment: e, share: fleet{dir: "apps", namespace: "bench-few", count: fleetFew, template: driftObjects}}
	if few.second, err = clustertest.Start(ctx, clustertest.Options{}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, few.second.Stop()) }()
	floor, err := few.firstSync(ctx, "few")
	if err != nil {
		return fmt.Errorf("first sync of few: %w", err)
	}
	floorTouch, err := few.touch(ctx)
	if err = errors.Join(err, few.agent.Close()); err != nil {
		return fmt.Errorf("touch few: %w", err)
	}
	all := &wholeFleet{environment: e, second: few.second, share: fleet{dir: "apps", namespace: "bench-fleet", count: e.fleet / fleetRepos, template: driftObjects}}
	first, err := all.firstSync(ctx, "fleet")
	if err != nil {
		return fmt.Errorf("first sync: %w", err)
	}
	defer func() { err = errors.Join(err, all.agent.Close()) }()
	if err := all.grow(ctx); err != nil {
		return fmt.Errorf("create the earlier ReplicaSets: %w", err)
	}
	all.info("fleet.applications", float64(all.count()), "")
	all.info("fleet.objects", float64(all.count()*(objectsPerApplication+foreignOld+1)), "")
	all.info("fleet.replicasets", float64(all.count()*(foreignOld+1)), "")
	all.compare("first_sync", first, floor, few.count())
	touched, err := all.touch(ctx)
	if err != nil {
		return fmt.Errorf("touch all: %w", err)
	}
	all.compare("nothing_changed", touched, floorTouch, few.count())
	for _, part := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"restart", all.restart}, {"drift", all.drift}, {"steady load", all.steady},
	} {
		if err := part.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// count returns the number of applications.
func (b *wholeFleet) count() int { return b.share.count * fleetRepos }

// of returns the applications of a repository.
func (b *wholeFleet) of(repo int) fleet {
	f := b.share.in(fmt.Sprintf("%s-%02d", b.share.namespace, repo))
	f.provider, _ = b.clusterOf(repo)
	return f
}

// clusterOf returns the platform provider of a repository, and the kubeconfig of its cluster.
func (b *wholeFleet) clusterOf(repo int) (provider, kubeconfig string) {
	if repo%2 == 0 {
		return "devcluster", b.cluster.Kubeconfig()
	}
	return "second", b.second.Kubeconfig()
}

// cost is what something took, and what the agent used.
type cost struct {
	took, cpu time.Duration
	peak      float64 // MiB
}

// firstSync starts the agent and deploys everything once.
func (b *wholeFleet) firstSync(ctx context.Context, name string) (c cost, err error) {
	for i := range fleetRepos {
		repo, err := b.newRepo(fmt.Sprintf("%s/repo-%02d", name, i))
		if err != nil {
			return c, err
		}
		b.repos = append(b.repos, repo)
		_, kubeconfig := b.clusterOf(i)
		client, err := clientOf(kubeconfig)
		if err != nil {
			return c, err
		}
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.of(i).namespace}}
		if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return c, err
		}
	}
	var others []string
	for _, repo := range b.repos[1:] {
		others = append(others, repo.Dir)
	}
	provider, kubeconfig := b.clusterOf(1)
	b.scene = &scene{repo: b.repos[0]}
	b.agent, err = b.start(ctx, name, b.repo, agenttest.Options{
		Interval: fleetInterval, Repos: others, More: fmt.Sprintf("    - {name: %s, type: KUBERNETES, config: {kubeConfigPath: %q}}\n", provider, kubeconfig),
	})
	if err != nil {
		return c, err
	}
	return b.passAll(ctx, "first")
}

// touch commits a comment in each manifest.
func (b *wholeFleet) touch(ctx context.Context) (cost, error) { return b.passAll(ctx, "second") }

// passAll commits to all repositories and waits until all applications have deployed that.
func (b *wholeFleet) passAll(ctx context.Context, comment string) (c cost, err error) {
	for i, repo := range b.repos {
		if err := repo.Write(b.of(i).files("v1", comment)); err != nil {
			return c, err
		}
	}
	before, err := cpuTime(b.agent.PID())
	if err != nil {
		return c, err
	}
	began, commits := time.Now(), map[string]bool{}
	for _, repo := range b.repos {
		commit, err := repo.Commit(comment)
		if err != nil {
			return c, err
		}
		commits[commit] = true
	}
	last, err := b.deployed(ctx, commits, b.count())
	if err != nil {
		return c, err
	}
	after, err := cpuTime(b.agent.PID())
	if err != nil {
		return c, err
	}
	c.took, c.cpu = last.Sub(began), after-before
	c.peak, err = memory(b.agent.PID(), "VmHWM")
	return c, err
}

// deployed returns when the last of some applications had deployed one of the commits, in whole seconds.
// It asks seldom: answers cost what is measured.
func (s *scene) deployed(ctx context.Context, commits map[string]bool, count int) (last time.Time, err error) {
	err = s.agent.Await(ctx, "all applications to be deployed", fleetPatience, func(ctx context.Context) (bool, error) {
		time.Sleep(time.Second + time.Duration(count)*5*time.Millisecond)
		apps, err := s.applications(ctx)
		if err != nil {
			return false, err
		}
		n := 0
		for _, app := range apps {
			done := app.GetMostRecentlySuccessfulDeployment()
			if !commits[done.GetTrigger().GetCommit().GetHash()] {
				continue
			}
			n++
			if at := time.Unix(done.GetCompletedAt(), 0); at.After(last) {
				last = at
			}
		}
		fmt.Fprintf(os.Stderr, "%d of %d are deployed\n", n, count)
		return n == count, fmt.Errorf("%d of %d so far", n, count)
	})
	return last, err
}

// compare prints what a pass cost, and how an application of many compares with one of few.
func (b *wholeFleet) compare(name string, c, floor cost, few int) {
	name = "fleet." + name
	b.info(name, seconds(c.took), "s")
	b.info(name+".cpu", seconds(c.cpu), "s")
	b.info(name+".peak_rss", c.peak, "MiB")
	b.info(name+".cpu_per_application", milliseconds(c.cpu)/float64(b.count()), "ms")
	b.info(name+".cpu_per_application.of_few", milliseconds(floor.cpu)/float64(few), "ms")
	b.atMost(name+".cpu_per_application.ratio_to_few", float64(c.cpu)/float64(b.count())/(float64(floor.cpu)/float64(few)), "x", 1.2)
	b.info(name+".per_application", milliseconds(c.took)/float64(b.count()), "ms")
	b.info(name+".per_application.of_few", milliseconds(floor.took)/float64(few), "ms")
}

// grow creates the ReplicaSets of earlier templates of all Deployments.
func (b *wholeFleet) grow(ctx context.Context) error {
	for repo := range b.repos {
		_, kubeconfig := b.clusterOf(repo)
		client, err := clientOf(kubeconfig)
		if err != nil {
			return err
		}
		if err := b.growIn(ctx, client, b.of(repo).namespace); err != nil {
			return err
		}
	}
	return nil
}

func (b *wholeFleet) growIn(ctx context.Context, client kubernetes.Interface, namespace string) error {
	list, err := client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(foreignWriters)
	for i, d := range list.Items {
		group.Go(func() error { return createHistory(within, client, &d, d.Spec.Template.Labels, i) })
	}
	return group.Wait()
}

// restart starts the agent again, when it has forgotten all sync states, and measures until it knows
// them.
func (b *wholeFleet) restart(ctx context.Context) error {
	if err := b.agent.Stop(); err != nil {
		return err
	}
	var ids []string
	for repo := range b.repos {
		for i := range b.share.count {
			ids = append(ids, b.id(repo, i))
		}
	}
	if err := forget(ctx, filepath.Join(b.dir, "fleet"), ids); err != nil {
		return fmt.Errorf("forget the sync states: %w", err)
	}
	c, err := b.relearn(ctx, b.count())
	if err != nil {
		return err
	}
	b.atMost("fleet.restart_to_all_synced", seconds(c.took), "s", 4)
	b.info("fleet.restart.cpu", seconds(c.cpu), "s")
	b.atMost("fleet.restart.peak_rss", c.peak, "MiB", 200)
	return nil
}

// id returns the ID of an application.
func (b *wholeFleet) id(repo, i int) string {
	return deploy.ApplicationID(deploy.GitPath{RepoID: repoID(repo), Dir: filepath.Join(b.share.dir, b.share.name(i)), ConfigFile: "app.pipecd.yaml"})
}

// repoID returns the ID that the agent has for a repository: see agenttest.Options.
func repoID(repo int) string {
	if repo == 0 {
		return "apps"
	}
	return fmt.Sprintf("apps-%d", repo)
}

// drift changes objects of the first repository by hand.
func (b *wholeFleet) drift(ctx context.Context) error {
	if err := atRest(ctx, b.agent.PID(), fleetInterval); err != nil {
		return err
	}
	meta, err := metadataOf(b.cluster.Kubeconfig())
	if err != nil {
		return err
	}
	f := driftFleet{fleet: b.of(0), changed: min(fleetChanged, b.share.count)}
	d := &driftBench{environment: b.environment, name: "fleet", scene: b.scene, fleet: f, meta: meta}
	return d.change(ctx)
}

// steady changes the image of one application after the other, 30 a minute.
func (b *wholeFleet) steady(ctx context.Context) error {
	if err := atRest(ctx, b.agent.PID(), fleetInterval); err != nil {
		return err
	}
	n := int(b.steadyFor / fleetInterval)
	before, err := cpuTime(b.agent.PID())
	if err != nil {
		return err
	}
	size, err := b.storeSize()
	if err != nil {
		return err
	}
	began := time.Now()
	commits, pushed, err := b.load(ctx, n)
	if err != nil {
		return err
	}
	took := time.Since(began)
	after, err := cpuTime(b.agent.PID())
	if err != nil {
		return err
	}
	var seen, ran []time.Duration
	for i, commit := range commits {
		d, err := b.succeeded(ctx, b.id(i%fleetRepos, i/fleetRepos%b.share.count), commit)
		if err != nil {
			return err
		}
		seen, ran = append(seen, created(d).Sub(pushed[i])), append(ran, completed(d).Sub(created(d)))
	}
	return b.reportSteady(seen, ran, float64(after-before)/float64(took), size)
}

// load changes n images at the steady load. It returns the commits, and when they were pushed.
func (b *wholeFleet) load(ctx context.Context, n int) (commits []string, pushed []time.Time, err error) {
	return paced(ctx, n, fleetInterval, b.changeImage)
}

// paced pushes n commits with a pause between them. It returns these, and when they were pushed.
func paced(ctx context.Context, n int, pause time.Duration, push func(i int) (string, error)) (commits []string, pushed []time.Time, err error) {
	beat := time.NewTicker(pause)
	defer beat.Stop()
	for i := range n {
		commit, err := push(i)
		if err != nil {
			return nil, nil, err
		}
		commits, pushed = append(commits, commit), append(pushed, time.Now())
		select {
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-beat.C:
		}
	}
	return commits, pushed, nil
}

// changeImage pushes another image of the application whose turn it is.
func (b *wholeFleet) changeImage(i int) (commit string, err error) {
	repo := i % fleetRepos
	f := b.of(repo)
	app := i / fleetRepos % f.count
	if err := b.repos[repo].Write(f.filesOf(app, fmt.Sprint("steady-", i), "second")); err != nil {
		return "", err
	}
	return b.repos[repo].Commit("another image")
}

func (b *wholeFleet) reportSteady(seen, ran []time.Duration, cores float64, sizeBefore int64) error {
	size, err := b.storeSize()
	if err != nil {
		return err
	}
	rss, err := memory(b.agent.PID(), "VmRSS")
	if err != nil {
		return err
	}
	peak, err := memory(b.agent.PID(), "VmHWM")
	if err != nil {
		return err
	}
	b.info("fleet.steady.deployments", float64(len(ran)), "")
	b.info("fleet.steady.push_to_created.p50", milliseconds(median(seen)), "ms")
	b.info("fleet.steady.push_to_created.worst", milliseconds(worst(seen)), "ms")
	b.info("fleet.steady.created_to_success.p50", milliseconds(median(ran)), "ms")
	b.info("fleet.steady.created_to_success.p99", milliseconds(quantile(ran, 0.99)), "ms")
	b.info("fleet.steady.created_to_success.worst", milliseconds(worst(ran)), "ms")
	b.info("fleet.steady.cpu", cores, "cores")
	b.info("fleet.steady.rss", rss, "MiB")
	b.atMost("fleet.steady.peak_rss", peak, "MiB", 256)
	b.atMost("fleet.steady.store_growth", float64(size-sizeBefore)/float64(len(ran))*1000/(1<<20), "MiB per 1,000 deployments", 20)
	b.info("fleet.store", float64(size)/(1<<20), "MiB")
	return nil
}

// storeSize returns the size of the agent's database in bytes, without its log, which is used again.
func (b *wholeFleet) storeSize() (int64, error) {
	info, err := os.Stat(filepath.Join(b.dir, "fleet", "piped", "piped.db"))
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

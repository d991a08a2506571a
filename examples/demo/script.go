package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/githost/githosttest"
)

// waitTimeout is how long the demo waits before it gives up: long enough for a busy machine.
const waitTimeout = 2 * time.Minute

// demo is one run of the script.
type demo struct {
	bin, apps, keys string
	infrastructure  string // folder of the application of OpenTofu
	dir             string // holds everything the demo makes on this machine
	stage           stage
	out             *narrator

	cluster *clustertest.Cluster // nil on somebody's own
	made    bool                 // the namespace in somebody's own cluster
	repo    *repository
	host    *githosttest.GitHub // of the repository
	served  *gittest.HTTPServer
	agent   *agent
	watch   *watch

	subjectID   string // of the application the script changes
	expected    []expectation
	differences []string // what was not as it should be
}

// newDemo makes the working folder. The caller must call close.
func newDemo(bin, apps, infrastructure, keys string, on stage, out *narrator) (*demo, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return nil, fmt.Errorf("find the programs: %w", err)
	}
	if keys, err = filepath.Abs(keys); err != nil {
		return nil, fmt.Errorf("find the keys: %w", err)
	}
	programs := []string{"piped", "pipectl"}
	if !on.own() {
		programs = append(programs, "devcluster", "tofu")
	}
	for _, program := range programs {
		if _, err := os.Stat(filepath.Join(bin, program)); err != nil {
			return nil, fmt.Errorf("%s is not built, run `make build`, `make devcluster` and `make tofu`: %w", program, err)
		}
	}
	if err := os.Setenv("DEVCLUSTER", filepath.Join(bin, "devcluster")); err != nil {
		return nil, fmt.Errorf("name the devcluster program: %w", err)
	}
	dir, err := os.MkdirTemp("", "piped-demo-")
	if err != nil {
		return nil, fmt.Errorf("make the working folder: %w", err)
	}
	d := &demo{bin: bin, apps: apps, infrastructure: infrastructure, keys: keys, dir: dir, stage: on, out: out}
	if err := d.ownTemporaryFiles(); err != nil {
		return nil, errors.Join(fmt.Errorf("make the working folder: %w", err), os.RemoveAll(dir))
	}
	return d, nil
}

// play runs the demo. What is not as it should be is noted in differences; an
// error means that the story cannot go on.
func (d *demo) play(ctx context.Context) error {
	steps := d.steps()
	began := time.Now()
	for i, s := range steps {
		d.out.heading(fmt.Sprintf("%d  %s", i+1, s.title))
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("step %d, %q: %w", i+1, s.title, err)
		}
	}
	d.out.note("All of it took %s.", seconds(time.Since(began)))
	return nil
}

// step is a part of the script.
type step struct {
	title string
	do    func(context.Context) error
}

// steps returns the script. On somebody's own cluster those are left out that need kinds
// which not every cluster has, or a program of their own.
func (d *demo) steps() []step {
	first := step{"A Kubernetes control plane on this machine", d.startCluster}
	routing := []step{
		{"A canary gets more and more of the traffic", d.canary},
		{"A canary that cannot start", d.breakCanary},
		{"A plan of OpenTofu that waits for a person", d.addInfrastructure},
	}
	if d.stage.own() {
		first, routing = step{"A namespace in your cluster", d.useCluster}, nil
	}
	return slices.Concat([]step{
		first,
		{"A Git repository with the applications", d.makeRepository},
		{"The agent, watching both", d.startAgent},
		{"The page, with a link that signs in once", d.openPage},
		{"It finds the applications and deploys them", d.firstDeployments},
		{"A secret that Git has encrypted", d.showSecret},
		{"A commit changes a setting of a kustomization", d.changeSetting},
		{"A commit changes an image", d.changeImage},
		{"A commit that cannot roll out", d.breakImage},
		{"A commit that fixes it", d.fixImage},
		{"A pipeline that waits for a person", d.approve},
	}, routing, []step{
		{"A pull request gets a preview, whose comment says when it works", d.previewPullRequest},
		{"Someone changes a live object by hand", d.drift},
		{"Someone deploys what is no application", d.foreign},
		{"A person asks for a deployment", d.syncByHand},
		{"An application heals itself", d.heal},
		{"What happened", d.conclude},
	})
}

// kubeconfig returns the file with the access to the cluster.
func (d *demo) kubeconfig() string {
	if d.stage.own() {
		return filepath.Join(d.dir, "kubeconfig")
	}
	return d.cluster.Kubeconfig()
}

// provider names the cluster on the page.
func (d *demo) provider() string {
	if d.stage.own() {
		return "own"
	}
	return "devcluster"
}

func (d *demo) startCluster(ctx context.Context) error {
	dir := filepath.Join(d.dir, "cluster")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	d.out.note("etcd, API server, controller manager, scheduler and three simulated nodes are starting")
	began := time.Now()
	var err error
	if d.cluster, err = clustertest.Start(ctx, clustertest.Options{Dir: dir, Args: []string{"--route-status", "accept"}}); err != nil {
		return err
	}
	d.out.good("ready after %s", seconds(time.Since(began)))
	return d.defineRouting(ctx)
}

func (d *demo) makeRepository(context.Context) error {
	var err error
	if d.repo, err = newRepository(filepath.Join(d.dir, "apps.git"), d.apps, d.stage); err != nil {
		return err
	}
	if err := d.hostRepository(); err != nil {
		return err
	}
	d.out.fact("remote", d.served.URL)
	d.out.fact("commit", shortHash(d.repo.Head())+"  "+firstMessage)
	return nil
}

func (d *demo) startAgent(ctx context.Context) error {
	var err error
	if d.agent, err = startAgent(ctx, d.bin, d.dir, d.provider(), d.kubeconfig(), d.stage.namespace, d.served.URL, d.host.URL, d.keys, !d.stage.own()); err != nil {
		return err
	}
	d.agent.timeout = d.stage.timeout
	d.out.command("piped run --config " + d.agent.Config)
	d.watch = newWatch(d.agent.API, d.out)
	d.watch.since(d.repo.Head(), d.agent.started) // the commit was there before the agent
	d.out.good("the control API answers on %s after %s", d.agent.Address, seconds(time.Since(d.agent.started)))
	return nil
}

func (d *demo) firstDeployments(ctx context.Context) error {
	apps, err := d.agent.applications(ctx, d.repo.apps)
	if err != nil {
		return err
	}
	for _, app := range apps {
		d.out.fact("found", fmt.Sprintf("%-12s%s/%s", app.Name, app.GitPath.Path, app.GitPath.ConfigFilename))
		if app.Name == subject {
			d.subjectID = app.Id
		}
	}
	d.out.gap()
	for _, app := range apps {
		if _, err := d.expect(ctx, app.Name, onCommit, success); err != nil {
			return err
		}
	}
	return d.expectImage(ctx, subject, d.stage.images.first)
}

func (d *demo) showSecret(ctx context.Context) error {
	ciphertext, err := d.repo.ciphertext()
	if err != nil {
		return err
	}
	d.out.fact("in Git", ciphertext)
	return d.expectSecret(ctx)
}

// changeSetting commits another content of a generated ConfigMap, which then has
// another name: new pods are started with it.
func (d *demo) changeSetting(ctx context.Context) error {
	if err := d.repo.commitChange(kustomized+"/kustomization.yaml", firstGreeting, nextGreeting, "Greet "+nextGreeting); err != nil {
		return err
	}
	d.reportCommit("Greet " + nextGreeting)
	d.out.fact("setting", "greeting="+nextGreeting)
	d.out.gap()
	if _, err := d.expect(ctx, kustomized, onCommit, success); err != nil {
		return err
	}
	return d.expectGreeting(ctx)
}

func (d *demo) changeImage(ctx context.Context) error { return d.rollOut(ctx, d.stage.images.next) }

func (d *demo) fixImage(ctx context.Context) error { return d.rollOut(ctx, d.stage.images.fixed) }

// rollOut commits an image that works and sees it deployed.
func (d *demo) rollOut(ctx context.Context, tag string) error {
	if err := d.commitImage(subject, tag, "Deploy "+tag); err != nil {
		return err
	}
	if _, err := d.expect(ctx, subject, onCommit, success); err != nil {
		return err
	}
	return d.expectImage(ctx, subject, tag)
}

func (d *demo) breakImage(ctx context.Context) error {
	if err := d.commitImage(subject, badTag, "Deploy an image that does not exist"); err != nil {
		return err
	}
	deployment, err := d.expect(ctx, subject, onCommit, failure)
	if err != nil {
		return err
	}
	d.expectRollback(deployment)
	return d.expectImage(ctx, subject, d.stage.images.next)
}

// approve commits an image to the application whose pipeline waits for a person,
// and is that person.
func (d *demo) approve(ctx context.Context) error {
	if err := d.commitImage(gated, d.stage.images.next, "Deploy "+d.stage.images.next+" after approval"); err != nil {
		return err
	}
	waiting, err := d.awaitApproval(ctx, gated)
	if err != nil {
		return err
	}
	d.out.gap()
	if err := d.approveDeployment(ctx, waiting, "reviewed"); err != nil {
		return err
	}
	if _, err := d.expect(ctx, gated, onCommit, success); err != nil {
		return err
	}
	return d.expectImage(ctx, gated, d.stage.images.next)
}

// approveDeployment is the person that a deployment waits for.
func (d *demo) approveDeployment(ctx context.Context, id, reason string) error {
	err := d.agent.pipectl(ctx, d.out, "deployment", "approve", "--deployment-id", id, "--reason", reason, "--check-interval", "1s")
	d.out.gap()
	return err
}

func (d *demo) syncByHand(ctx context.Context) error {
	err := d.agent.pipectl(ctx, d.out, "application", "sync", "--app-id", d.subjectID,
		"--wait-status", success.String(), "--check-interval", "1s", "--timeout", "1m")
	if err != nil {
		return err
	}
	d.out.gap()
	if _, err := d.expect(ctx, subject, onCommand, success); err != nil {
		return err
	}
	return d.expectImage(ctx, subject, d.stage.images.fixed)
}

func (d *demo) commitImage(app, tag, message string) error {
	if err := d.repo.commitImage(app, tag, message); err != nil {
		return err
	}
	d.reportCommit(message)
	d.out.fact("image", d.stage.images.at(tag))
	d.out.gap()
	return nil
}

// reportCommit prints the head commit, which was just created.
func (d *demo) reportCommit(message string) {
	d.watch.since(d.repo.Head(), time.Now())
	d.out.fact("commit", shortHash(d.repo.Head())+"  "+message)
}

// close ends the programs, last started first, checks that they left nothing, and
// removes the working folder unless it shall be kept.
func (d *demo) close(keep bool) error {
	d.out.gap()
	d.out.note("Removing what the demo started.")
	var errs []error
	if d.agent != nil {
		errs = append(errs, d.agent.Close())
	}
	if d.served != nil {
		errs = append(errs, d.served.Close())
	}
	if d.host != nil {
		d.host.Close()
	}
	if d.cluster != nil {
		errs = append(errs, d.cluster.Stop())
	}
	if d.made {
		errs = append(errs, d.leaveCluster())
	}
	if d.stage.own() {
		errs = append(errs, os.RemoveAll(d.kubeconfig())) // it has credentials
	}
	errs = append(errs, d.leftovers()...)
	if keep {
		d.out.note("The working folder is kept, with the logs: %s", d.dir)
	} else {
		errs = append(errs, os.RemoveAll(d.dir))
	}
	return errors.Join(errs...)
}

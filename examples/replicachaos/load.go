package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// prefix begins the names of the applications.
const prefix = "replicachaos-"

// application is one application of the load. Each commit that touches it raises the revision, which
// its pods have as an annotation: each revision is a rollout.
type application struct {
	name, pipeline string
	revision       int
}

// pipelines has the lines below spec. %[1]s is the file to which scripts write: the deployment, the
// script and the time.
var pipelines = []string{"", `
  planner: {alwaysUsePipeline: true}
  pipeline:
    stages:
      - name: SCRIPT_RUN
        with:
          run: 'echo "$SR_DEPLOYMENT_ID before" >> %[1]s'
      - name: K8S_SYNC
      - name: WAIT
        with: {duration: 1s}
      - name: SCRIPT_RUN
        with:
          run: 'echo "$SR_DEPLOYMENT_ID after" >> %[1]s; for i in 1 2 3 4 5; do sleep 0.2; echo "$SR_DEPLOYMENT_ID tick $(date +%%s%%N)" >> %[1]s; done'
          onRollback: 'echo "$SR_DEPLOYMENT_ID undo $(date +%%s%%N)" >> %[1]s'
`, `
  planner: {alwaysUsePipeline: true}
  pipeline:
    stages:
      - name: WAIT_APPROVAL
      - name: K8S_CANARY_ROLLOUT
        with: {replicas: 1}
      - name: K8S_SYNC
      - name: K8S_CANARY_CLEAN
      - name: SCRIPT_RUN
        with:
          run: 'echo "$SR_DEPLOYMENT_ID after" >> %[1]s'
`}

// newApplications returns the applications, which take turns in their pipelines.
func newApplications(n int, scripts string) (out []*application) {
	for i := range n {
		a := &application{name: fmt.Sprintf("%s%02d", prefix, i)}
		if p := pipelines[i%len(pipelines)]; p != "" {
			a.pipeline = fmt.Sprintf(p, scripts)
		}
		out = append(out, a)
	}
	return out
}

// write writes the files of an application at its revision.
func (a *application) write(workTree, namespace, image string) error {
	dir := filepath.Join(workTree, a.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	config := fmt.Sprintf("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: %s\n  input: {namespace: %s}\n%s", a.name, namespace, a.pipeline)
	if err := os.WriteFile(filepath.Join(dir, "app.pipecd.yaml"), []byte(config), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "app.yaml"), fmt.Appendf(nil, `apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: 1
  revisionHistoryLimit: 1000
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}, annotations: {revision: "%[2]d"}}
    spec: {containers: [{name: c, image: %[3]q}]}
`, a.name, a.revision, image), 0o644)
}

// commit raises the revisions of applications in one commit, and pushes it.
func (c *chaos) commit(ctx context.Context, touched []*application) error {
	for _, a := range touched {
		a.revision++
		if err := a.write(c.WorkTree, c.Namespace, c.Image); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"add", "-A", "--", prefix + "*"}, {"commit", "-q", "-m", fmt.Sprintf("Change %d applications", len(touched))}, {"push", "-q", "origin", "HEAD"}} {
		git := exec.CommandContext(ctx, "git", append([]string{"-C", c.WorkTree}, args...)...)
		if out, err := git.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	head, err := exec.CommandContext(ctx, "git", "-C", c.WorkTree, "rev-parse", "HEAD").Output()
	c.head = strings.TrimSpace(string(head))
	return err
}

// load commits, approves and counts until there are enough deployments.
func (c *chaos) load(ctx context.Context) error {
	for made := 0; made < c.deployments; {
		var touched []*application
		for _, i := range c.random.Perm(len(c.apps))[:1+c.random.IntN(min(3, len(c.apps)))] {
			touched = append(touched, c.apps[i])
		}
		if err := c.commit(ctx, touched); err != nil {
			return err
		}
		if err := wait(ctx, time.Duration(c.random.Int64N(int64(1500*time.Millisecond)))); err != nil {
			return err
		}
		if all, err := c.client.deployments(ctx); err == nil { // the next round asks again
			made = 0
			for _, d := range all {
				if d.GetStatus() != modelv1.DeploymentStatus_DEPLOYMENT_CANCELLED {
					made++
				}
			}
			c.approve(ctx, all)
		}
	}
	return nil
}

// approve approves every stage that waits for it. What is not answered is repeated by the next round.
func (c *chaos) approve(ctx context.Context, all []*modelv1.Deployment) {
	for _, d := range all {
		for _, s := range d.GetStages() {
			if s.GetName() == "WAIT_APPROVAL" && s.GetStatus() == modelv1.StageStatus_STAGE_RUNNING {
				_ = c.client.approve(ctx, d.GetId(), s.GetId())
			}
		}
	}
}

// settle waits until everything that was pushed is deployed, or has failed.
func (c *chaos) settle(ctx context.Context) error {
	for {
		why := c.unsettled(ctx)
		if why == nil {
			return nil
		}
		if err := wait(ctx, time.Second/4); err != nil {
			return fmt.Errorf("not everything ended: %w", why)
		}
	}
}

// unsettled returns what has not ended.
func (c *chaos) unsettled(ctx context.Context) error {
	apps, err := c.client.applications(ctx)
	if err != nil {
		return err
	}
	all, err := c.client.deployments(ctx)
	if err != nil {
		return err
	}
	c.approve(ctx, all)
	for _, a := range c.apps {
		if at := apps[a.name].GetEvaluatedCommit(); at != c.head {
			return fmt.Errorf("%s was evaluated at commit %q, the head is %s", a.name, at, c.head)
		}
	}
	for _, d := range all {
		if !ended(d.GetStatus()) {
			return fmt.Errorf("deployment %s of %s is %s: %s", d.GetId(), d.GetApplicationName(), d.GetStatus(), d.GetStatusReason())
		}
	}
	return nil
}

func ended(s modelv1.DeploymentStatus) bool {
	switch s {
	case modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE, modelv1.DeploymentStatus_DEPLOYMENT_CANCELLED:
		return true
	}
	return false
}

// wait waits for a time, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
